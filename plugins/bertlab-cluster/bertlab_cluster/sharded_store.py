"""Token stores of several shards, here or behind a URL, and their writer.

A store of much text has shards of whole documents, so that no file has more than so many tokens::

    shards/00000.tokens.npy            ids of the shard
    shards/00000.sentence_offsets.npy  int64 into them
    document_token_offsets.npy         (D + 1,) int64 into the tokens of all shards

and its ``store.json`` is their manifest. All else is as in a store of one.
"""

import hashlib
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from bertlab import IntArray, TokenStore, check_at_least
from bertlab.api import Tokenizer
from bertlab.extend import (
    ARRAYS,
    SHARDED_VERSION,
    StoreMetadata,
    TokenArray,
    TokenStoreWriter,
    checked_fields,
    damaged,
    is_url,
    map_array,
    write_json,
)
from bertlab_cluster.remote_store import SHARD_FOLDER, RemoteStore
from bertlab_cluster.shards import SHARD_ARRAYS, Shard, open_shards, read_shards, shard_file

WHOLE_ARRAYS = ("document_offsets", "document_token_offsets", "token_counts")
"""Those that a store of many shards has once, as they are small."""
SHARD_TOKENS = 100_000_000
"""Tokens of a shard at most, unless a document alone has more: 200 MB of ids."""


@dataclass(frozen=True)
class ShardedMetadata(StoreMetadata):
    """Content of ``store.json``.

    Attributes:
        shards: of a store with more than one, in order.
        digest: of a store with more than one, :attr:`TokenStore.digest`.
    """

    shards: tuple[Shard, ...] = ()
    digest: str = ""


class ShardedStore(TokenStore):
    """A store of several shards, or one behind a URL, which may have one alone.

    Args:
        path: its folder, or the URL of one.
        cache_dir: where the files of one behind a URL are kept for a while;
            ``default_cache_dir`` if None.
        manifest_sha256: of the ``store.json`` behind a URL, where it is opened once more.

    Attributes:
        path: the folder; of a store behind a URL, that in the cache.
    """

    metadata: ShardedMetadata

    def __init__(
        self,
        path: str | Path,
        cache_dir: Path | None = None,
        manifest_sha256: str | None = None,
    ) -> None:
        self._remote = None
        if is_url(str(path)):
            self._remote = RemoteStore(str(path), cache_dir, manifest_sha256)
        super().__init__(path if self._remote is None else self._remote.folder)

    def __reduce__(self) -> tuple[type[TokenStore], tuple[Any, ...]]:
        # a worker maps the files anew; arrays are not copied
        if self._remote is None:
            return ShardedStore, (self.path,)
        return ShardedStore, (self._remote.url, self._remote.cache_dir, self.manifest_sha256)

    @cached_property
    def digest(self) -> str:
        """As of other stores; one behind a URL is not read for it: its manifest says it.

        Each shard is compared with the manifest when it is fetched.
        """
        is_known = self._remote is not None and self.metadata.shards
        return self.metadata.digest if is_known else super().digest

    @property
    def hashes(self) -> dict[str, str | None]:
        """As of other stores, and of the shards that lie here."""
        if self._remote is not None:
            return super().hashes
        shards = enumerate(self.metadata.shards)
        return super().hashes | {
            shard_file(name, number): shard.sha256[name]
            for number, shard in shards
            for name in SHARD_ARRAYS
        }

    @property
    def recorded(self) -> dict[str, str | None]:
        """As of other stores; with the digest, where only ``store.json`` has said it so far."""
        is_read = self._remote is None or not self.metadata.shards
        said = {} if is_read else {"digest": self.digest}
        return super().recorded | said

    def _read_metadata(self, content: dict[str, Any]) -> ShardedMetadata:
        shards = read_shards(self.path, content.get("shards", []))
        digest = content.get("digest", "")
        if not isinstance(digest, str):
            raise damaged(self.path, f"digest of store.json is {digest!r}")
        fields = checked_fields(self.path, content)
        is_sharded = fields["format_version"] == SHARDED_VERSION
        for name in ("tokens", "sentences"):
            of_shards = sum(getattr(shard, name) for shard in shards)
            if is_sharded != bool(shards) or (shards and of_shards != fields[name]):
                raise damaged(self.path, f"the shards of store.json have {of_shards} {name}")
        return ShardedMetadata(**fields, shards=shards, digest=digest)

    def _open_arrays(self) -> dict[str, Any]:
        meta = self.metadata
        if not meta.shards:
            return super()._open_arrays()
        arrays = {name: map_array(self.path, name, meta) for name in WHOLE_ARRAYS}
        self.__dict__["document_token_offsets"] = arrays["document_token_offsets"]
        dtype = np.dtype(meta.dtype)
        return arrays | open_shards(self.path, meta.shards, dtype, self._remote)

    def _check_arrays(self) -> None:
        if not self.metadata.shards:
            super()._check_arrays()
            return
        # the tokens and the sentences of a shard are looked at when it is opened
        self._check_forms((*ARRAYS, "document_token_offsets"))
        self._check_rise("document_token_offsets", self.metadata.tokens)


class ShardedWriter(TokenStoreWriter):
    """Writes a store of one shard as the core does, and one of several if there are more tokens.

    Args:
        path: folder to make; must not exist, or be empty.
        tokenizer: that made the tokens; a copy is kept in the store.
        corpus_fingerprint: hash of the corpus.
        shard_tokens: tokens after which the next document begins another shard.
    """

    def __init__(
        self,
        path: str | Path,
        tokenizer: Tokenizer,
        corpus_fingerprint: str,
        shard_tokens: int | None = None,
    ) -> None:
        super().__init__(path, tokenizer, corpus_fingerprint)
        self.shard_tokens = SHARD_TOKENS if shard_tokens is None else shard_tokens
        check_at_least("shard_tokens", self.shard_tokens, 1)
        self._shards: list[Shard] = []

    def _open_columns(self) -> None:
        (self.folder / SHARD_FOLDER).mkdir()
        for name in ("document_offsets", "document_token_offsets"):
            self._open_column(name, name)
        self._begin_shard()

    def _begin_shard(self) -> None:
        self._file_starts = self.tokens, self.sentences
        for name, dtype in zip(SHARD_ARRAYS, (self.tokenizer.dtype, None), strict=True):
            file = shard_file(name, len(self._shards)).removesuffix(".npy")
            self._open_column(name, file, dtype)

    def _end_shard(self) -> None:
        sizes, hashes = {}, {}
        for name in SHARD_ARRAYS:
            self._columns[name].finish()
            file = self.folder / shard_file(name, len(self._shards))
            sizes[name] = file.stat().st_size
            with file.open("rb") as content:
                hashes[name] = hashlib.file_digest(content, "sha256").hexdigest()
        tokens, sentences = self._file_starts
        shard = Shard(self.tokens - tokens, self.sentences - sentences, sizes, hashes)
        self._shards.append(shard)

    def _append(self, ids: TokenArray, lengths: IntArray, counts: IntArray) -> None:
        # lengths [3, 2, 4], counts [2, 1] -> document_ends [2, 3], token_ends [5, 9]
        document_ends = np.cumsum(counts)
        token_ends = np.cumsum(lengths)[document_ends - 1]
        done, tokens_done = 0, 0
        while done < len(counts):
            # 4 tokens left in the shard: none of the documents of 5 and 4 tokens goes into it
            room = self.shard_tokens - (self.tokens - self._file_starts[0])
            end = int(token_ends.searchsorted(tokens_done + room, side="right"))
            if end <= done:
                if self.tokens > self._file_starts[0]:
                    self._end_shard()
                    self._begin_shard()
                    continue
                end = done + 1  # a document that is larger than a shard has one of its own
            first = int(document_ends[done - 1]) if done else 0
            self._append_to_shard(
                ids[tokens_done : token_ends[end - 1]],
                lengths[first : document_ends[end - 1]],
                counts[done:end],
            )
            done, tokens_done = end, int(token_ends[end - 1])

    def _append_to_shard(self, ids: TokenArray, lengths: IntArray, counts: IntArray) -> None:
        # lengths [3, 2, 4], counts [2, 1] -> tokens of documents end at [5, 9]
        token_ends = np.cumsum(lengths)[np.cumsum(counts) - 1]
        self._columns["document_token_offsets"].append(token_ends + self.tokens)
        super()._append(ids, lengths, counts)

    def _finish(self) -> None:
        if not self._shards:
            self._make_whole()
            super()._finish()
            return
        self._end_shard()
        for name in ("document_offsets", "document_token_offsets"):
            self._columns[name].finish()
        self._save_rest()
        content = self._manifest(SHARDED_VERSION, WHOLE_ARRAYS)
        content |= {"shards": [asdict(shard) for shard in self._shards], "digest": ""}
        write_json(self.folder / "store.json", content)
        content["digest"] = ShardedStore(self.folder).digest
        write_json(self.folder / "store.json", content)

    def _make_whole(self) -> None:
        """Make the only shard the whole store, as all were before there were shards; no hashes."""
        for name in SHARD_ARRAYS:
            (self.folder / shard_file(name, 0)).rename(self.folder / f"{name}.npy")
        (self.folder / SHARD_FOLDER).rmdir()
        (self.folder / "document_token_offsets.npy").unlink()
