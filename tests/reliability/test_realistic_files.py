"""A sample of realistic files; benchmarks/realistic_files.py reads thousands."""

from tests.reliability.realistic_files import draw
from tests.reliability.realistic_rows import verdict


def test_what_is_in_the_file_is_what_is_read(tmp_path):
    found = []
    for seed in range(160):
        folder = tmp_path / str(seed)
        folder.mkdir()
        case = draw(seed, folder)
        found.append((seed, case.kind, verdict(case)))
    wrong = [each for each in found if each[2].name not in ("right", "refused")]
    assert not wrong
    assert {each[2].name for each in found} == {"right", "refused"}
