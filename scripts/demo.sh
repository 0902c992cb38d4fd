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
config=$source_dir/jobs/demo.ini

# train NAME LAYOUT...: two ranks, run NAME.
train()
{
    local name=$1
    shift
    mpiexec -n 2 "$bin/plimsoll-train" --config "$config" --run.dir "$run/$name" "$@"
}
. "$source_dir/scripts/metrics_field.sh"
# field RUN NAME: "step value attempt" of the rows that have the field.
field() { [ ! -f "$run/$1/metrics.jsonl" ] || metrics_field "$2" "$run/$1/metrics.jsonl"; }
last_step()
{
    local step
    step=$(field "$1" loss | tail -n 1 | cut -d ' ' -f 1)
    echo "${step:-0}"
}
# expect CODE COMMAND...: runs it and insists on its exit code.
expect()
{
    local wanted=$1 code=0
    shift
    "$@" || code=$?
    [ "$code" = "$wanted" ] || die "exit code $code instead of $wanted: $*"
}
# rank_process DIR RANK: the process id that the rank wrote into its status file.
rank_process()
{
    od -A n -t d8 -j 32 -N 8 "$1/ranks/rank_$(printf '%05d' "$2").status" | tr -d ' '
}

say "1 text: the King James Bible, a document for each chapter"
"$source_dir/datasets/fetch_kjv.sh" "$run"
documents=$(wc -l <"$run/kjv.jsonl")
bytes=$(wc -c <"$run/kjv.jsonl")
echo "$documents documents, $bytes bytes"

say "2 train-bpe: a vocabulary of 4,096 ids, learned from the text"
"$bin/plimsoll-shard" train-bpe --input "$run/kjv.jsonl" --vocab 4096 --pattern llama3 --out "$run/tokenizer.json"

say "3 shard: text to token shards, 2 % of the documents for validation"
"$bin/plimsoll-shard" --input "$run/kjv.jsonl" --tokenizer "$run/tokenizer.json" --out "$run/kjv" --validation 2%
"$bin/plimsoll-shard" verify "$run/kjv"

say "4 estimate: what two ranks with tp 2 need, before anything starts"
"$bin/plimsoll-estimate" --config "$config" --world 2 --tp 2

say "5 a run that does not fit is refused before it allocates anything, with what would fit"
expect 2 train refused --tp 2 --memory-limit 64MiB

say "6 train: tp 2, one rank killed with SIGKILL after step 25"
train demo --tp 2 --stop-at-step 40 &
launcher=$!
trap 'kill -9 $launcher 2>/dev/null || true' EXIT
while [ "$(last_step demo)" -lt 25 ]; do
    kill -0 $launcher 2>/dev/null || die "the training ended before it was killed"
    sleep 0.1
done
kill -9 "$(rank_process "$run/demo" 1)"
wait $launcher 2>/dev/null && die "the job went on without rank 1"
trap - EXIT
killed_at=$(last_step demo)
echo "killed; the last step that it wrote is $killed_at"

say "7 resume: the same command, to step 40"
expect 75 train demo --tp 2 --stop-at-step 40

say "8 reshard: the checkpoint of tp 2, rewritten for pp 2"
"$bin/plimsoll-reshard" "$run/demo" "$run/resharded" --tp 1 --pp 2
"$bin/plimsoll-reshard" verify "$run/resharded" --level full

say "9 go on with pp 2 from the rewritten checkpoint, under a new name"
train demo-pp --pp 2 --checkpoint.resume "$run/resharded"

say "10 go on with dp 2 and zero 1 from the checkpoint of tp 2 itself"
train demo-dp --dp 2 --zero 1 --checkpoint.resume "$run/demo"

say "11 verify: every byte of the last checkpoints against their checksums"
for name in demo demo-pp demo-dp; do "$bin/plimsoll-reshard" verify "$run/$name" --level full; done

say "12 bench: all-reduce of these two ranks"
mpiexec -n 2 "$bin/plimsoll-bench" allreduce --sizes 1K:4M

say "13 report"
for name in demo demo-pp demo-dp; do "$bin/plimsoll-report" "$run/$name"; done
"$bin/plimsoll-report" "$run/demo-pp" --text

say "the loss continued"
# Steps after the last save were done twice, before the kill and after it: the same bits both times.
field demo loss | awk '
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
        printf "%d of %d repeated steps have the same loss to the last digit\n\n", equal, both
        exit !(both > 0 && equal == both)
    }' || die "the loss did not continue"
# Two layouts that went on from one checkpoint: another order of summation is all that differs.
difference=$(join -j 1 <(field demo-pp loss | sort -k 1b,1) <(field demo-dp loss | sort -k 1b,1) | sort -n | awk '
    NR == 1 { printf "%6s  %-20s %-20s\n", "step", "loss with pp 2", "loss with dp 2" >"/dev/stderr" }
    NR % 4 == 1 { printf "%6d  %-20s %-20s\n", $1, $2, $4 >"/dev/stderr" }
    { d = ($2 - $4) / $4; if (d < 0) d = -d; if (d > most) most = d }
    END { printf "%.1e", most; exit !(NR > 0 && most < 1e-4) }') || die "the layouts do not agree"
echo "largest relative difference of pp 2 and dp 2: $difference"

first_loss=$(field demo loss | sed -n '1s/^[0-9]* \([^ ]*\).*/\1/p')
last_loss=$(field demo-pp loss | tail -n 1 | cut -d ' ' -f 2)
awk -v first="$first_loss" -v last="$last_loss" 'BEGIN { exit !(last > 0 && last < first && first < 20) }' ||
    die "the model did not learn (loss $first_loss at the start, $last_loss at the end)"
last_val=$(field demo-pp val_loss | tail -n 1 | cut -d ' ' -f 2)
bits=$(field demo-pp bits_per_byte | tail -n 1 | cut -d ' ' -f 2)
repeated=$(field demo loss | awk '{ ++n[$1] } END { for (s in n) if (n[s] > 1) ++r; print r + 0 }')
# "plan 149.1 MiB, measured 149.1 MiB" of a run.
memory()
{
    "$bin/plimsoll-report" "$run/$1" --json | tr ',' '\n' | sed -n -E 's/.*"(measured|planned)_peak_bytes": ?([0-9]+).*/\1 \2/p' |
        awk '{ bytes[$1] = $2 } END { printf "plan %.1f MiB, measured %.1f MiB", bytes["planned"] / 1048576, bytes["measured"] / 1048576 }'
}

say "summary"
printf '%-9s %s\n' \
    shard "$documents documents -> $(ls "$run"/kjv/*.h5 | wc -l) shard, $(ls "$run"/kjv/validation/*.h5 | wc -l) validation shard in $run/kjv" \
    refused "a limit of 64 MiB per rank: named what needs it and what would fit" \
    train "tp 2: $killed_at steps, then SIGKILL of rank 1" \
    resume "tp 2: from the last committed step, $repeated steps again with equal losses, stopped at step $(last_step demo)" \
    reshard "tp 2 -> pp 2, every element once, digests equal" \
    pp "pp 2: steps $(($(last_step demo) + 1)) to $(last_step demo-pp) from the rewritten checkpoint" \
    dp "dp 2 zero 1: the same steps from the checkpoint of tp 2; losses differ by at most $difference" \
    loss "$(printf '%.4f -> %.4f' "$first_loss" "$last_loss") nats per token, validation $(printf '%.4f' "$last_val") ($(printf '%.2f' "$bits") bits per byte)" \
    memory "tp 2: $(memory demo)" "" "pp 2: $(memory demo-pp)" "" "dp 2: $(memory demo-dp)" \
    verify "demo, demo-pp, demo-dp: ok" \
    report "$run/demo-pp/report.html (also demo, demo-dp)" \
    time "$((SECONDS - started)) s"
