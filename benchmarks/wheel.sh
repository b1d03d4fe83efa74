#!/usr/bin/env bash
# The wheels as their user meets them: built, installed into a new environment in an empty folder, and used there.
#
#   bash benchmarks/wheel.sh > benchmarks/figures/wheel.txt
#
# 20 steps in place of 2,500, as what is shown is that it works. CI does the same (.github/workflows/tests.yml).
set -eu
clone=$(cd "$(dirname "$0")/.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export COLUMNS=100 BERTLAB_CACHE="$folder/cache" PIP_DISABLE_PIP_VERSION_CHECK=1

say() {
    printf '$'
    for each in "$@"; do
        case $each in *' '*) printf " '%s'" "$each" ;; *) printf ' %s' "$each" ;; esac
    done
    echo
    { "$@" 2>&1 || true; } | sed -e "s#$folder#/home/me#g" -e "s#$clone#/home/me/bertlab-clone#g"
    echo
}

(cd "$clone" && pip wheel -q --no-deps -w "$folder" -r plugins/requirements.txt ./plugins/bertlab-lightning)
say ls
python3 -m venv .venv
PATH="$folder/.venv/bin:$PATH"
pip install -q -c "$clone/constraints.txt" ./*.whl
echo "\$ pip install *.whl"
pip list 2>/dev/null | grep -E "^(bertlab-.*|lightning|torch) "
echo
say bertlab --version
say bertlab fit quickstart --trainer.max_steps 20 --trainer.val_check_interval 10 --data.validation_sequences 100
say ls runs/quickstart
say bertlab predict runs/quickstart --text "Return the [MASK] of the list." --top_k 2
say bertlab export runs/quickstart my-bert
say bertlab init classification my.yaml
say bertlab fit mrpc
