"""The tree: what is loaded from where, what is refused, and how it changes while running."""

import os
import queue
import shutil
import socket
import threading
import time
from pathlib import Path

import pytest

from sia.skills.tree import Tree, TreeHolder, UnknownSkill, load

CODE = "def act(ctx): ctx.state['v'] = 1\n"


@pytest.fixture
def roots(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "skills", tmp_path / "home"


def ids(tree: Tree) -> list[str]:
    return [skill.id for skill in tree.skills]


def test_later_roots_win_by_name_and_add_to_categories(write, roots):
    checkout, home = roots
    write("notes/write", CODE, description="Old.")
    write("notes/read", CODE)
    write("email/compose", CODE)
    own = home / "notes" / "write"
    shutil.copytree(checkout / "notes" / "write", own)
    (own / "SKILL.md").write_text("---\nname: write\ndescription: Mine.\n---\n")
    (own / "skill.py").unlink()
    shutil.copytree(checkout / "notes" / "read", home / "notes" / "seek")
    text = (home / "notes" / "seek" / "SKILL.md").read_text()
    (home / "notes" / "seek" / "SKILL.md").write_text(text.replace("name: read", "name: seek"))

    tree = load(roots)
    assert tree.problems == ()
    assert [category.name for category in tree.categories] == ["email", "notes"]
    assert ids(tree) == ["email/compose", "notes/read", "notes/seek", "notes/write"]
    assert tree.skill("notes/write").description == "Mine."
    assert tree.skill("notes/write").folder == own and not tree.skill("notes/write").has_code
    assert tree.category("notes").description == "Things."
    (home / "notes" / "CATEGORY.md").write_text("---\nname: notes\ndescription: Ours.\n---\n")
    assert load(roots).category("notes").description == "Ours."
    with pytest.raises(UnknownSkill, match="there is no skill 'notes/none'"):
        tree.skill("notes/none")
    with pytest.raises(UnknownSkill, match="there is no category 'none'"):
        tree.category("none")


def test_a_category_may_stand_without_skills(write, roots):
    write("notes/write", CODE)
    for root, description in zip(roots, ("Where things are.", "Parcels."), strict=True):
        (root / "tracking").mkdir(parents=True)
        text = f"---\nname: tracking\ndescription: {description}\n---\n"
        (root / "tracking" / "CATEGORY.md").write_text(text)
    holder = TreeHolder(roots)
    assert [(c.name, len(c.skills)) for c in holder.tree.categories] == [
        ("notes", 1), ("tracking", 0)
    ]  # fmt: skip
    assert holder.tree.category("tracking").description == "Parcels."
    (roots[1] / "tracking" / "CATEGORY.md").write_text("broken")
    tree = holder.reload()
    assert tree.category("tracking").description == "Parcels." and len(tree.problems) == 1
    shutil.rmtree(roots[0] / "tracking")
    shutil.rmtree(roots[1] / "tracking")
    assert [c.name for c in holder.reload().categories] == ["notes"]


def test_what_is_broken_is_named_and_the_rest_loads(write, roots):
    checkout, home = roots
    write("notes/write", CODE)
    write("notes/broken", CODE)
    (checkout / "notes" / "broken" / "skill.py").write_text("def act(ctx:\n")
    write("alone/skill", CODE)
    (checkout / "alone" / "CATEGORY.md").unlink()
    write("bad/skill", CODE)
    (checkout / "bad" / "CATEGORY.md").write_text("nothing")
    shutil.copytree(checkout / "notes" / "write", checkout / "flat")
    (checkout / "notes" / "half").mkdir()
    (checkout / "notes" / "half" / "skill.py").write_text(CODE)
    for ignored in (".git/skill", "__pycache__/x", "notes/empty", "notes/.trash"):
        (checkout / ignored).mkdir(parents=True)
    (checkout / "README.md").write_text("not a category")

    tree = load(roots)
    assert ids(tree) == ["notes/write"]
    assert [str(problem).removeprefix(f"{checkout}/") for problem in tree.problems] == [
        "alone: has no CATEGORY.md with name and description",
        "bad/CATEGORY.md:1: must begin with front matter between two lines '---'",
        "flat: a skill lies in a category: move it to CATEGORY/flat",
        "notes/broken/skill.py:1: is not Python: '(' was never closed",
        "notes/half/SKILL.md: cannot be read: No such file or directory",
    ]


def test_a_broken_skill_of_the_home_leaves_the_one_of_the_checkout(write, roots):
    write("notes/write", CODE)
    (roots[1] / "notes" / "write").mkdir(parents=True)
    (roots[1] / "notes" / "write" / "SKILL.md").write_text("broken")
    tree = load(roots)
    assert tree.skill("notes/write").folder == roots[0] / "notes" / "write"
    assert len(tree.problems) == 1


def test_a_root_that_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("")
    tree = load([tmp_path / "file", tmp_path / "none"])
    assert tree.categories == ()
    assert [str(p) for p in tree.problems] == [f"{tmp_path}/file: cannot be read: Not a directory"]


def test_what_a_skill_requires(write, roots, tmp_path, monkeypatch):
    path = tmp_path / "bus"
    needs = f"config:email.host binary:sh binary:no-such-program socket:{path}"
    write("email/send", CODE, more=f"sia-requires: {needs}")
    tree = load(roots)
    skill = tree.skill("email/send")
    config = {"email.host": ""}
    assert tree.available(skill, config.get) == (
        "email/send needs email.host: set host under [email] in sia.toml"
    )
    config["email.host"] = "localhost"
    assert tree.available(skill, config.get) == (
        "email/send needs the program no-such-program: install it"
    )
    program = tmp_path / "no-such-program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    missing = f"email/send needs the socket {path}: start the service that makes it"
    assert tree.available(skill, config.get) == missing
    path.write_text("a plain file")
    assert tree.available(skill, config.get) == missing
    path.unlink()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        assert tree.available(skill, config.get) == ""


def test_false_and_zero_are_values_of_a_setting(write, roots):
    write("email/send", CODE, more="sia-requires: config:email.port")
    tree = load(roots)
    assert tree.available(tree.skill("email/send"), {"email.port": 0}.get) == ""


def test_a_reload_keeps_the_old_version_of_what_became_broken(write, roots, pool, run):
    folder = write("notes/write", CODE)
    write("notes/read", CODE)
    write("email/send", CODE)
    holder = TreeHolder(roots)
    before = holder.tree
    assert holder.reload() == before

    (folder / "skill.py").write_text("def act(ctx: broken")
    (roots[0] / "email" / "CATEGORY.md").write_text("broken")
    shutil.rmtree(roots[0] / "notes" / "read")
    tree = holder.reload()
    assert tree is holder.tree
    assert ids(tree) == ["email/send", "notes/write"]
    assert len(tree.problems) == 2
    assert tree.skill("notes/write") == before.skill("notes/write")
    assert run(pool, tree.skill("notes/write")).state["v"] == 1
    assert ids(before) == ["email/send", "notes/read", "notes/write"]  # the old tree is unchanged

    assert ids(holder.reload()) == ["email/send", "notes/write"]  # and it stays, reload by reload
    (folder / "skill.py").write_text("def act(ctx): ctx.state['v'] = 2\n")
    write("email/send", CODE)
    (roots[0] / "email" / "CATEGORY.md").write_text("---\nname: email\ndescription: E.\n---\n")
    tree = holder.reload()
    assert tree.problems == ()
    assert run(pool, tree.skill("notes/write")).state["v"] == 2
    shutil.rmtree(folder)
    assert ids(holder.reload()) == ["email/send"]


def test_the_home_version_that_became_broken_is_kept_over_the_checkout(write, roots):
    write("notes/write", CODE, description="Old.")
    own = roots[1] / "notes" / "write"
    shutil.copytree(roots[0] / "notes" / "write", own)
    (own / "SKILL.md").write_text((own / "SKILL.md").read_text().replace("Old.", "Mine."))
    holder = TreeHolder(roots)
    (own / "SKILL.md").write_text("broken")
    assert holder.reload().skill("notes/write").description == "Mine."


@pytest.fixture
def watched(roots):
    """A holder that is watched, and the queue of the trees it announced."""
    holder, trees, stop = TreeHolder(roots), queue.Queue(), threading.Event()
    thread = holder.watch(stop, lambda tree, problems: trees.put((tree, problems)))
    yield holder, trees
    stop.set()
    thread.join(10)
    assert not thread.is_alive()


def test_watch_sees_a_skill_dropped_in_broken_mended_and_removed(write, roots, watched):
    holder, trees = watched
    deadline = time.monotonic() + 10
    while not roots[1].is_dir():  # made so that it can be watched
        assert time.monotonic() < deadline
        time.sleep(0.01)
    dropped, start = write("notes/write", CODE), time.monotonic()
    tree, problems = trees.get(timeout=10)
    assert time.monotonic() - start < 5  # 0.7 s, on a machine that has nothing else to do
    assert ids(tree) == ["notes/write"] and problems == ()
    assert holder.tree is tree

    (dropped / "skill.py").write_text("def act(ctx: broken")
    tree, problems = trees.get(timeout=10)
    assert ids(tree) == ["notes/write"]
    assert [str(p) for p in problems] == [
        f"{dropped}/skill.py:1: is not Python: '(' was never closed"
    ]

    (dropped / "skill.py").write_text(CODE)
    tree, problems = trees.get(timeout=10)
    assert problems == ()

    shutil.rmtree(dropped)
    tree, problems = trees.get(timeout=10)
    assert ids(tree) == [] and trees.empty()
