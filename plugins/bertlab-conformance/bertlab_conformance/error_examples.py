"""An example for each code of ``bertlab explain``: a mistake, and what is typed instead."""

# by code: what was typed, and what to type
EXAMPLES: dict[str, tuple[str, str]] = {
    "E100": (
        "a file that no other code is about",
        "what the message expects",
    ),
    "E101": (
        "bertlab fit quickstart --data.batchsize 8",
        "bertlab fit quickstart --data.batch_size 8",
    ),
    "E102": (
        "bertlab fit quikstart",
        "bertlab fit quickstart",
    ),
    "E103": (
        "bertlab trian my.yaml",
        "bertlab fit my.yaml",
    ),
    "E104": (
        "bertlab export runs/a there",
        "bertlab export runs/a there --overwrite true",
    ),
    "E105": (
        "bertlab fit quickstart --trainer.accelerator gpu",
        "bertlab fit quickstart",
    ),
    "E201": (
        "a study file without variants",
        "variants: {mlm: {model.objectives: [mlm]}, both: {}}",
    ),
    "E202": (
        "bertlab study run s.yaml, after a change of its variants",
        "bertlab study run s.yaml --study_dir studies/other",
    ),
    "E203": (
        "bertlab study run s.yaml --executor slurm, without sbatch",
        "bertlab study run s.yaml",
    ),
    "E204": (
        "bertlab study report s.yaml, after the corpus was changed and more seeds were run",
        "bertlab study report s.yaml --accept_mixture true, if mixed runs are good enough",
    ),
    "E301": (
        "bertlab fit quickstart --data.corpus my-txt/",
        "bertlab fit quickstart --data.corpus my-text/",
    ),
    "E302": (
        "bertlab fit my.yaml, of columns txt and lab",
        "bertlab fit my.yaml --data.columns '{text: txt, label: lab}'",
    ),
    "E303": (
        "bertlab fit my.yaml, with empty cells",
        "bertlab fit my.yaml --data.empty skip",
    ),
    "E304": (
        "bertlab fit quickstart --data.tokenizer notes.txt",
        "bertlab fit quickstart --data.tokenizer my-vocabulary/",
    ),
    "E305": (
        "bertlab fit quickstart --data.corpus half-a-store/",
        "bertlab prepare --corpus my-text/ --tokenizer my-vocabulary --output my-store",
    ),
    "E401": (
        "bertlab validate runs/quikstart",
        "bertlab validate runs/quickstart",
    ),
    "E402": (
        "bertlab fit --ckpt_path runs/a, of a last.ckpt copied by half",
        "bertlab fit --ckpt_path runs/a/checkpoints/step-500.ckpt",
    ),
    "E403": (
        "bertlab fit --ckpt_path runs/a --data.batch_size 64",
        "bertlab fit runs/a/config.yaml --model.init_from runs/a --data.batch_size 64",
    ),
    "E404": (
        "bertlab evaluate runs/finetune-quickstart blimp",
        "bertlab evaluate runs/quickstart blimp",
    ),
    "E405": (
        "bertlab watch runs/a, whose diagnosis.json was edited",
        "bertlab watch runs/a, with that file taken away",
    ),
    "E501": (
        "bertlab fit my.yaml, with a plugin that fails on import",
        "bertlab plugins check",
    ),
    "E502": (
        "bertlab fit quickstart --model.objectives '[mlm, sopp]'",
        "bertlab fit quickstart --model.objectives '[mlm, sop]'",
    ),
    "E503": (
        "bertlab fit my.yaml, with a callback that fails",
        "BERTLAB_DEBUG=1 bertlab fit my.yaml",
    ),
    "E601": (
        "bertlab fit quickstart --model.optimizer.learning_rate 100",
        "bertlab fit quickstart --model.optimizer.learning_rate 2e-3",
    ),
    "E602": (
        "bertlab fit my.yaml, of which a process was killed",
        "bertlab fit --ckpt_path runs/my",
    ),
    "E603": (
        "bertlab fit my.yaml, on a device that computes wrong",
        "bertlab fit --ckpt_path runs/my, on another device",
    ),
    "E604": (
        "bertlab fit pretrain/bert-base, on a small GPU",
        "bertlab fit pretrain/bert-base --trainer.accumulate_grad_batches auto",
    ),
}
