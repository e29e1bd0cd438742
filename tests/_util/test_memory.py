from fairerclip._util import memory


def test_available_memory_is_what_linux_says_or_else_the_free_pages(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "PROC", tmp_path)
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\nMemFree: 1000 kB\nMemAvailable:    8000 kB\n")
    assert memory.available_memory() == 8000 << 10
    known = {"SC_AVPHYS_PAGES": 1000, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(memory.os, "sysconf", known.__getitem__)
    for text in ("MemTotal: 9000 kB\n", "MemAvailable: many\n", "MemAvailable:\n"):
        (tmp_path / "meminfo").write_text(text)
        assert memory.available_memory() == 1000 * 4096

    def unknown(name):
        raise ValueError(name)

    (tmp_path / "meminfo").unlink()
    monkeypatch.setattr(memory.os, "sysconf", unknown)
    assert memory.available_memory() is None


def test_the_limit_of_a_container_counts_and_so_do_those_around_it(monkeypatch, tmp_path):
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    own = groups / "service" / "worker"
    own.mkdir(parents=True)
    (proc / "self").mkdir(parents=True)
    monkeypatch.setattr(memory, "PROC", proc)
    monkeypatch.setattr(memory, "GROUPS", groups)
    (proc / "meminfo").write_text("MemAvailable: 8000 kB\n")
    (proc / "self" / "cgroup").write_text("4:memory:/other\n0::/service/worker\n")
    assert memory.available_memory() == 8000 << 10
    for folder, limit, used, cached in ((own, "max", 10, 0), (own.parent, "5000000", 2_000_000, 600_000)):
        (folder / "memory.max").write_text(f"{limit}\n")
        (folder / "memory.current").write_text(f"{used}\n")
        (folder / "memory.stat").write_text(f"anon 7\ninactive_file {cached}\n")
    assert memory.available_memory() == 3_600_000
    (own.parent / "memory.current").write_text("7000000\n")
    assert memory.available_memory() == 0
