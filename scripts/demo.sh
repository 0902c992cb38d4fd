#!/usr/bin/env bash
# demo.sh BIN_DIR RUN_DIR: the whole pipeline on real text, with a kill in the middle. Ends with a table of what each stage did and
# figures that show that the loss continued. Everything is written below RUN_DIR, which is emptied first.
set -eu -o pipefail
bin=$1
run=$2
source_dir=$(cd "$(dirname "$0")/.." && pwd)
started=$SECONDS

say() { printf '\n== %s\n' "$*"; }
die() { printf 'demo: %s\n' "$*" >&2; exit 1; }

# Only a folder that an earlier demo made is emptied.
if [ -e "$run" ] && [ ! -e "$run/.plimsoll-demo" ] && [ -n "$(ls -A "$run")" ]; then
    die "'$run' is not empty and no demo made it. give another DEMO_DIR"
fi
rm -rf "$run"
mkdir -p "$run"
touch "$run/.plimsoll-demo"
run=$(cd "$run" && pwd)
export SCRATCH=$run
metrics=$run/demo/metrics.jsonl
train=("$bin/plimsoll-train" --config "$source_dir/jobs/demo.ini" --run.dir "$run/demo")

# field NAME: reads JSON lines, prints "step value attempt" of the rows that have the field.
field()
{
    sed -n -E "s/^.*\"step\":([0-9]+),.*\"$1\":([-0-9.e+]+),.*\"attempt\":([0-9]+).*$/\1 \2 \3/p" "$metrics"
}
last_step()
{
    local step=
    [ ! -f "$metrics" ] || step=$(field loss | tail -n 1 | cut -d ' ' -f 1)
    echo "${step:-0}"
}

say "1 text: the King James Bible, a document for each chapter"
"$source_dir/datasets/fetch_kjv.sh" "$run"
documents=$(wc -l <"$run/kjv.jsonl")
bytes=$(wc -c <"$run/kjv.jsonl")
echo "$documents documents, $bytes bytes"

say "2 shard: bytes to token shards, 2 % of the documents for validation"
"$bin/plimsoll-shard" --input "$run/kjv.jsonl" --tokenizer bytes --out "$run/kjv" --validation 2%

say "3 check: everything that can be checked without starting"
"${train[@]}" --dry-run

say "4 train: killed with SIGKILL after step 35"
"${train[@]}" &
trainer=$!
trap 'kill -9 $trainer 2>/dev/null || true' EXIT
while [ "$(last_step)" -lt 35 ]; do
    kill -0 $trainer 2>/dev/null || die "the training ended before it was killed"
    sleep 0.1
done
kill -9 $trainer 2>/dev/null || die "the training ended before it was killed"
wait $trainer 2>/dev/null || true
trap - EXIT
killed_at=$(last_step)
echo "killed; the last step that it wrote is $killed_at"

say "5 resume: the same command"
"${train[@]}"

say "6 verify: every byte of the last checkpoint against its checksums"
"$bin/plimsoll-reshard" verify "$run/demo" --level full

say "7 the loss continued"
# Steps after the last save were done twice, before the kill and after it: the same bits both times.
field loss | awk '
    $3 == 1 { before[$1] = $2 }
    $3 == 2 { if (first == "") first = $1; after[$1] = $2; last = $1 }
    END {
        printf "%6s  %-20s %-20s\n", "step", "loss before kill", "loss after resume"
        for (s = first - 2; s <= first + 9 && s <= last; ++s) {
            if (!(s in before) && !(s in after)) continue
            note = ""
            if ((s in before) && (s in after)) { note = before[s] == after[s] ? "equal" : "DIFFERENT"; ++both; equal += before[s] == after[s] }
            printf "%6d  %-20s %-20s %s\n", s, s in before ? before[s] : "-", s in after ? after[s] : "-", note
        }
        printf "%d of %d repeated steps have the same loss to the last digit\n", equal, both
        exit !(both > 0 && equal == both)
    }' || die "the loss did not continue"

first_loss=$(field loss | sed -n '1s/^[0-9]* \([^ ]*\).*/\1/p')
last_loss=$(field loss | tail -n 1 | cut -d ' ' -f 2)
last_val=$(field val_loss | tail -n 1 | cut -d ' ' -f 2)
bits=$(field bits_per_byte | tail -n 1 | cut -d ' ' -f 2)
steps=$(last_step)
repeated=$(field loss | awk '{ ++n[$1] } END { for (s in n) if (n[s] > 1) ++r; print r + 0 }')

say "summary"
printf '%-9s %s\n' \
    shard "$documents documents -> $(ls "$run"/kjv/*.h5 | wc -l) shard, $(ls "$run"/kjv/validation/*.h5 | wc -l) validation shard in $run/kjv" \
    train "$killed_at steps, then SIGKILL" \
    resume "went on from the last committed step, did $repeated steps again with equal losses, ended at step $steps" \
    loss "$(printf '%.4f -> %.4f' "$first_loss" "$last_loss") nats per byte, validation $(printf '%.4f' "$last_val") ($(printf '%.2f' "$bits") bits per byte)" \
    verify "$(ls -d "$run"/demo/ckpt/step_* | tail -n 1): ok" \
    metrics "$metrics" \
    time "$((SECONDS - started)) s"
