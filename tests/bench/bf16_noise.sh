#!/usr/bin/env bash
# bf16_noise.sh [BIN_DIR [WORK_DIR [STEPS [OPTION...]]]]: whether bf16 follows fp32 within the noise of two fp32 seeds, on the
# demo's model and data. Three runs of STEPS (500) steps: fp32, fp32 with another seed (other initial weights, another order of
# data), bf16 with the first seed; each with OPTIONS; without any 256 tokens per step, which takes some minutes. The mean
# of |difference of the losses| to the first run, smoothed over 20 steps, and the validation losses are printed; nothing is asserted.
set -eu -o pipefail
bin=${1:-$PLIMSOLL_BIN}
work=${2:-$bin/../bf16_noise}
steps=${3:-500}
shift $(($# < 3 ? $# : 3))
options=("$@")
[ $# -gt 0 ] || options=(--global-batch 2 --micro-batch 2 --seq-len 128 --threads 1)
source_dir=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$work"
work=$(cd "$work" && pwd)
export SCRATCH=$work
. "$source_dir/scripts/metrics_field.sh"

if [ ! -d "$work/kjv" ]; then
    "$source_dir/datasets/fetch_kjv.sh" "$work"
    "$bin/plimsoll-shard" --input "$work/kjv.jsonl" --tokenizer bytes --out "$work/kjv" --validation 2%
fi
# The demo's length is tokens, here the steps are given; a model of bytes, which a few hundred steps get far with.
sed "s/^tokens = 250K/steps = $steps/; s/llama-6m/llama-5m/" "$source_dir/jobs/demo.ini" >"$work/noise.ini"
ln -sfn "$source_dir/jobs/models" "$work/models"
# train NAME OPTIONS...
train()
{
    local name=$1
    shift
    "$bin/plimsoll-train" --config "$work/noise.ini" --run.dir "$work/$name" --eval.every "$((steps / 5))" --checkpoint.every "$steps" "${options[@]}" "$@"
}
train fp32 --seed 7
train fp32-seed --seed 8
train bf16 --seed 7 --precision bf16

# mean_difference A B: of the losses smoothed over 20 steps.
mean_difference()
{
    join -j 1 <(metrics_field loss "$work/$1/metrics.jsonl" | sort -k 1b,1) <(metrics_field loss "$work/$2/metrics.jsonl" | sort -k 1b,1) |
        sort -n | awk '
            { a += $2; b += $4; if (++n == 20) { d = (a - b) / 20; if (d < 0) d = -d; sum += d; if (d > most) most = d; ++m; a = b = n = 0 } }
            END { printf "mean %.5f, largest %.5f nats over %d windows", sum / m, most, m }'
}
final() { metrics_field "$2" "$work/$1/metrics.jsonl" | tail -n 1 | cut -d ' ' -f 2; }
printf '\n%-22s %s\n' "fp32, another seed" "$(mean_difference fp32-seed fp32)" "bf16, the same seed" "$(mean_difference bf16 fp32)"
for name in fp32 fp32-seed bf16; do
    printf '%-22s validation %.5f\n' "$name" "$(final "$name" val_loss)"
done
noise=$(mean_difference fp32-seed fp32 | sed -E 's/mean ([0-9.]+),.*/\1/')
bf16=$(mean_difference bf16 fp32 | sed -E 's/mean ([0-9.]+),.*/\1/')
awk -v noise="$noise" -v bf16="$bf16" 'BEGIN { printf "bf16 is %.2f of the noise of two seeds\n", bf16 / noise }'
