"""State machines: caches driven through random rounds, and compared with a fresh prefill after every step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from specref.kv_cache import KVCache, PagedCache, PagePool, settle, unread
from specref.kv_cache.pages import page_names
from specref.tree import TokenTree

from .kinds import K, Kind, Mismatch, compare, entries, shuffled_pool, tree_entries

TOKENS = st.integers(0, 2)  # few, so that right tokens after wrong prefixes are common
ROUNDS = st.lists(TOKENS, min_size=1, max_size=K + 1)  # the last committed token and up to K drafts


@st.composite
def trees(draw: Callable[..., Any]) -> tuple[TokenTree, int]:
    """A tree of up to 7 nodes and no path longer than K, and the last accepted node, more often a late one."""
    parents, depth = [-1], [0]
    for node in range(1, draw(st.sampled_from([7, 6, 5, 4, 3, 2, 1]))):
        parent = draw(st.sampled_from([n for n in range(node) if depth[n] < K][::-1]))
        parents.append(parent)
        depth.append(depth[parent] + 1)
    last = max(draw(st.integers(0, len(parents) - 1)), draw(st.integers(0, len(parents) - 1)))
    return TokenTree([draw(TOKENS) for _ in parents], parents), last


class OneSequence(RuleBasedStateMachine):
    """Any kind of cache, one sequence. `tokens` is what the cache should hold."""

    kind: ClassVar[Kind]

    @initialize()
    def start(self) -> None:
        self.cache, self.tokens = self.kind.make(), list[int]()

    def compare(self, when: str) -> None:
        self.kind.compare(self.cache, self.tokens, when)

    @rule(prompt=st.lists(TOKENS, max_size=9))
    def read(self, prompt: list[int]) -> None:
        """A prefill, or a step without drafts: nothing is taken back."""
        self.append(prompt)
        self.compare("after an append")

    @rule(tokens=ROUNDS, data=st.data())
    def chain(self, tokens: list[int], data: st.DataObject) -> None:
        """A round; at most the whole of it is taken back, in one step or in two (a stop inside the accepted part)."""
        start = len(self.tokens)
        self.append(tokens)
        self.compare("after an append")
        for _ in range(data.draw(st.integers(0, 2), label="rollbacks")):
            self.rollback(data.draw(st.integers(start, len(self.tokens)), label="length"))

    @rule(drawn=trees(), data=st.data())
    def tree(self, drawn: tuple[TokenTree, int], data: st.DataObject) -> None:
        """A round over a tree, of which a path is kept; then perhaps less (a stop inside it)."""
        tree, node = drawn
        start = len(self.tokens)
        self.cache.append(tree_entries(self.tokens, tree.tokens, tree.parents), tree.parents)
        self.compare("while a tree waits")
        self.cache.gather(tree.path(node))
        self.tokens += [tree.tokens[0], *tree.spells(node)]
        self.compare(f"after gather({tree.path(node)}) of parents {tree.parents}")
        if data.draw(st.booleans(), label="stop"):
            self.rollback(data.draw(st.integers(start, len(self.tokens)), label="length"))

    @rule(drawn=trees())
    def dropped_tree(self, drawn: tuple[TokenTree, int]) -> None:
        """A tree of which not even the root is kept."""
        tree, _ = drawn
        self.cache.append(tree_entries(self.tokens, tree.tokens, tree.parents), tree.parents)
        self.rollback(len(self.tokens))

    @precondition(lambda self: self.cache.earliest == 0 < self.cache.length)
    @rule(data=st.data())
    def rewind(self, data: st.DataObject) -> None:
        """Back over earlier rounds, where the cache can."""
        self.rollback(data.draw(st.integers(0, len(self.tokens)), label="length"))

    def append(self, tokens: Sequence[int]) -> None:
        start = len(self.tokens)
        self.tokens += tokens
        self.cache.append(entries(self.tokens)[start:])

    def rollback(self, length: int) -> None:
        before = len(self.tokens)
        del self.tokens[length:]
        self.cache.rollback(length)
        self.compare(f"after a rollback from {before} to {length}")


class SharedPages(RuleBasedStateMachine):
    """Several sequences over one pool: prefix reuse, forks, and the pool's own books.

    `held` is every sequence with its tokens; `rows_named` what each name must stand for.
    """

    page_size: ClassVar[int]
    cache_class: ClassVar[type[PagedCache]] = PagedCache
    pool_class: ClassVar[type[PagePool]] = PagePool

    @initialize(prompt=st.lists(TOKENS, min_size=4, max_size=7))
    def start(self, prompt: list[int]) -> None:
        # Few enough pages that published ones are needed again, enough that most rounds fit.
        self.pool = shuffled_pool(self.page_size, 2 + 16 // self.page_size, self.pool_class)
        self.held: list[tuple[PagedCache, list[int]]] = []
        self.rows_named: dict[bytes, Any] = {}
        self.published_tokens: list[list[int]] = []
        self.go_on(self.cache_class(self.pool), [], prompt)
        self.publish(*self.held[0])

    def a_sequence(self, data: st.DataObject) -> tuple[PagedCache, list[int]]:
        return self.held[data.draw(st.integers(0, len(self.held) - 1), label="sequence")]

    def fits(self, count: int) -> bool:
        """Whether `count` rows surely fit: their pages, and a copied one."""
        return self.pool.free >= count // self.page_size + 2

    @precondition(lambda self: len(self.held) < 3)
    @rule(more=st.lists(TOKENS, max_size=4), data=st.data())
    def begin(self, more: list[int], data: st.DataObject) -> None:
        """A request, often with a prefix that was published: what is found is taken over, the rest is read."""
        known = data.draw(st.sampled_from(self.published_tokens), label="known")
        prompt = known[: data.draw(st.integers(0, len(known)), label="of them")] + more
        if self.fits(len(prompt)):
            cache = self.cache_class.reuse(self.pool, prompt)
            self.go_on(cache, prompt[: cache.length], prompt[cache.length :])

    @precondition(lambda self: self.held)
    @rule(drafts=ROUNDS, data=st.data())
    def chain(self, drafts: list[int], data: st.DataObject) -> None:
        cache, tokens = self.a_sequence(data)
        if self.fits(len(drafts)):
            cache.append(entries(tokens + drafts)[len(tokens) :])
            kept = data.draw(st.integers(0, len(drafts)), label="kept")
            if data.draw(st.booleans(), label="publish while drafts are in"):
                self.publish_amid_drafts(cache, tokens, drafts, kept)
            tokens += drafts[:kept]
            cache.rollback(len(tokens))

    @precondition(lambda self: self.held)
    @rule(drawn=trees(), data=st.data())
    def tree(self, drawn: tuple[TokenTree, int], data: st.DataObject) -> None:
        (tree, node), (cache, tokens) = drawn, self.a_sequence(data)
        if self.fits(len(tree)):
            cache.append(tree_entries(tokens, tree.tokens, tree.parents), tree.parents)
            if data.draw(st.booleans(), label="publish while a tree waits"):
                self.publish(cache, tokens)
            cache.gather(tree.path(node))
            tokens += [tree.tokens[0], *tree.spells(node)]

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        self.publish(*self.a_sequence(data))

    @precondition(lambda self: 0 < len(self.held) < 3)
    @rule(one=st.lists(TOKENS, max_size=2), other=st.lists(TOKENS, max_size=2), data=st.data())
    def fork(self, one: list[int], other: list[int], data: st.DataObject) -> None:
        """Two answers to one prompt, each going on in its own way."""
        if self.fits(len(one) + self.page_size * 2 + len(other)):
            cache, tokens = self.a_sequence(data)
            self.held.remove((cache, tokens))
            self.go_on(cache.fork(), tokens, one)
            self.go_on(cache, tokens, other)

    @precondition(lambda self: self.held)
    @rule(back=st.integers(1, 4), more=st.lists(TOKENS, max_size=4), data=st.data())
    def edit(self, back: int, more: list[int], data: st.DataObject) -> None:
        """Some committed tokens are replaced, in shared and published pages too."""
        cache, tokens = self.a_sequence(data)
        if self.fits(len(more)):
            del tokens[-back:]
            cache.rollback(len(tokens))
            self.held.remove((cache, tokens))
            self.go_on(cache, tokens, more)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        """The end of a request: its pages are free, and stay findable until they are needed."""
        cache, tokens = self.a_sequence(data)
        cache.rollback(0)
        self.held.remove((cache, tokens))

    def go_on(self, cache: PagedCache, tokens: list[int], more: list[int]) -> None:
        cache.append(entries(tokens + more)[len(tokens) :])
        self.held.append((cache, tokens + more))

    def publish_amid_drafts(self, cache: PagedCache, tokens: list[int], drafts: list[int], kept: int) -> None:
        """Between append and rollback only what was committed before the round may be published."""
        self.publish(cache, tokens)

    def publish(self, cache: PagedCache, tokens: list[int]) -> None:
        cache.publish(tokens)
        self.published_tokens.append(list(tokens))
        self.rows_named.update(self.pages_of(tokens))

    def pages_of(self, tokens: list[int]) -> dict[bytes, Any]:
        size = self.page_size
        return {name: entries(tokens)[i * size :][:size] for i, name in enumerate(page_names(tokens, size))}

    @invariant()
    def every_sequence_is_a_fresh_prefill(self) -> None:
        for cache, tokens in getattr(self, "held", ()):
            compare(cache, tokens, entries(tokens), f"page size {self.page_size}, one of {len(self.held)} sequences")

    @invariant()
    def every_published_page_holds_what_its_name_says(self) -> None:
        if hasattr(self, "held"):
            for name, rows in self.pool.published().items():
                if name not in self.rows_named or not (rows == self.rows_named[name]).all():
                    raise Mismatch(f"a published page holds\n{rows}\nits name says\n{self.rows_named.get(name)}")

    @invariant()
    def the_books_balance(self) -> None:
        if hasattr(self, "held"):
            users = [sum(cache.table.count(page) for cache, _ in self.held) for page in range(len(self.pool.users))]
            if users != self.pool.users or self.pool.free != users.count(0):
                raise Mismatch(f"pages are used {users} times, the pool says {self.pool.users}, {self.pool.free} free")


class DraftModel(RuleBasedStateMachine):
    """The draft's own cache: drafting reads one token at a time, and never reads its last draft."""

    kind: ClassVar[Kind]
    settle: ClassVar[Callable[[KVCache, Sequence[int]], None]] = staticmethod(settle)
    unread: ClassVar[Callable[[KVCache, Sequence[int]], tuple[int, ...]]] = staticmethod(unread)

    @initialize(prompt=st.lists(TOKENS, min_size=1, max_size=6))
    def start(self, prompt: list[int]) -> None:
        self.cache, self.committed = self.kind.make(), prompt

    def read(self, tokens: Sequence[int], before: Sequence[int]) -> None:
        """The draft reads these tokens, believing that its cache holds `before`."""
        self.cache.append(entries([*before, *tokens])[len(before) :])

    @rule(drafts=st.lists(TOKENS, min_size=1, max_size=K), next_token=TOKENS, data=st.data())
    def round(self, drafts: list[int], next_token: int, data: st.DataObject) -> None:
        new = self.unread(self.cache, self.committed)
        self.read(new, self.committed[: len(self.committed) - len(new)])
        self.kind.compare(self.cache, self.committed, "before drafting")
        for i, token in enumerate(drafts[:-1]):
            self.read([token], self.committed + drafts[:i])
        accepted = data.draw(st.integers(0, len(drafts)), label="accepted")
        self.committed = [*self.committed, *drafts[:accepted], next_token]
        self.settle(self.cache, self.committed)
        behind = 2 if accepted == len(drafts) else 1
        self.kind.compare(self.cache, self.committed[:-behind], f"after {accepted} of {len(drafts)} accepted")

    @rule(next_token=TOKENS)
    def without_a_draft(self, next_token: int) -> None:
        """The target went on alone: the draft falls one token more behind."""
        self.committed = [*self.committed, next_token]
        self.settle(self.cache, self.committed)


def run(machine: type[RuleBasedStateMachine], examples: int = 40, steps: int = 12, shrink: bool = True) -> None:
    """Drive the machine through fresh random histories; a difference raises Mismatch, after the smallest was sought."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            report_multiple_bugs=False,
            phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
