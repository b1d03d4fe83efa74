#!/usr/bin/env bash
# One run on several machines without a scheduler. On each of them:
#   NODES=2 MASTER=first-machine fit-torchrun.sh CONFIG RUN_DIR [--KEY VALUE …]
# NODES=1:4 trains on as many of four machines as are there: goes on with fewer when one is lost, and takes in
# each that starts this. All meet at MASTER. RUN_DIR is on a disk that all see; GPUS is their number in a machine.
set -euo pipefail
config=$1 run_dir=$2
shift 2
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
# with the store of torch 2.13's agents, a machine that joins later waits in vain for the others
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
trap 'exit 130' INT
saved() { stat -c %Y "$run_dir/checkpoints/last.ckpt" 2>/dev/null || true; }
# torchrun starts the processes again three times, and ends where machines are lost while they meet;
# it is begun again as long as the run gets on, or five times
tries=0
until
  before=$(saved)
  torchrun --nnodes "$NODES" --nproc_per_node "${GPUS:=1}" --max_restarts 3 \
    --rdzv_backend c10d --rdzv_endpoint "$MASTER:${PORT:-29500}" --rdzv_id "$run_dir" \
    -m bertlab fit --config "$config" --run_dir "$run_dir" --ckpt_path last \
    --trainer.strategy ddp --seed_everything 1 "$@"
do
  [ "$(saved)" = "$before" ] || tries=0
  [ -n "$(saved)" ] && ((++tries < 5)) || exit 1
  sleep 10
done
