"""YAML that people write: what is wrong in it is told by file and line."""

import pytest

from m2fdp.core.errors import InputError
from m2fdp.given.yaml_files import line_of, read_block, read_yaml


@pytest.fixture
def written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(content):
        path = tmp_path / "a.yml"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def test_plain_values_come_as_they_are(written):
    text = "a: [1, 2.5, x]\nb: &b {c: null}\nd: *b\ne: {<<: *b, f: 1}\n"
    assert read_yaml(written(text)) == {
        "a": [1, 2.5, "x"],
        "b": {"c": None},
        "d": {"c": None},
        "e": {"c": None, "f": 1},
    }
    assert read_block(written("# nothing\n")) == {}


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("a: 1\nb: [1,\n", "a.yml, line 3 = '(empty)': is no YAML: "),
        ("a:\n\tb: 1\n", r"a.yml, line 2 = '\tb: 1': is no YAML: "),
        ("a: 1\nb: 2\na: 3\n", "a.yml, line 3 = 'a: 3': sets a again, after line 1; keep one"),
        ("x: [{a: 1,\n  a: 2}]\n", "a.yml, line 2 = '  a: 2}]': sets a again, after line 1"),
        ("a: {b: 2, b: 3}\n", "a.yml, line 1 = 'a: {b: 2, b: 3}': sets b again; keep one"),
        ("a: {~: 3}\n", "a.yml, line 1 = 'a: {~: 3}': sets a key that is null; give it a name"),
        ("\na: &a {b: [*a]}\n", "a.yml, line 2 = 'a: &a {b: [*a]}': an anchor's value holds its"),
        ("a: &a\n  <<: *a\n", "a.yml, line 1 = 'a: &a': an anchor's value holds itself; write"),
        ("a: &a [1, *a]\n", "a.yml, line 1 = 'a: &a [1, *a]': an anchor's value holds itself"),
        ("a: \x01\n", r"a.yml, line 1 = 'a: \x01': is no YAML: "),
        ("a: é\n".encode("latin-1"), r"a.yml = b'\xe9': byte 3 is not UTF-8; save the file as"),
        ("- a\n", "a.yml = ['a']: is a list; valid: keys with values"),
    ],
)
def test_what_is_wrong_is_told_by_file_and_line(written, content, line):
    with pytest.raises(InputError) as caught:
        read_block(written(content))
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)


def test_the_line_of_a_key(written):
    path = written("a: 1\nb:\n  c: 2\n  d: 3\n")
    assert line_of(path, ["b", "d"]) == 4
    assert line_of(path, ["b"]) == 2
    assert line_of(path, ["a", "d"]) is None
    assert line_of(path, ["e"]) is None
