"""Reads and writes safetensors files with NumPy only.

A file is: u64 little-endian header length, a JSON header {name: {dtype, shape, data_offsets}}, then
the bytes. Types without a NumPy equivalent stay bit patterns (BF16 as uint16, F8_E4M3 as uint8)
until `Tensor.f64()` widens them; widening is exact for every type here.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib

import numpy as np

from numerics import bf16_to_f64, e4m3_to_f64

STORED: dict[str, np.dtype] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
    "F8_E4M3": np.dtype("u1"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I64": np.dtype("<i8"),
}
_HEADER_LIMIT_BYTES = 100_000_000


class FormatError(ValueError):
    """A file that is not what it claims to be."""


@dataclasses.dataclass(frozen=True)
class Tensor:
    """One stored tensor: its safetensors type and its raw elements (a bit pattern for BF16, F8)."""

    dtype: str
    data: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        return self.data.shape

    def f64(self, rows: np.ndarray | None = None) -> np.ndarray:
        """The exact float64 values; with `rows` only those of the first axis, in that order."""
        raw = self.data if rows is None else self.data[rows]
        if self.dtype == "BF16":
            return bf16_to_f64(raw)
        if self.dtype == "F8_E4M3":
            return e4m3_to_f64(raw)
        return np.asarray(raw, dtype=np.float64)

    def ints(self) -> np.ndarray:
        if self.dtype not in ("I16", "I32", "I64"):
            raise FormatError(f"expected an integer tensor, got {self.dtype}")
        return np.asarray(self.data, dtype=np.int64)


def read_file(path: pathlib.Path) -> dict[str, Tensor]:
    """All tensors of one file; their data is memory-mapped, nothing is copied."""
    blob = np.memmap(path, dtype=np.uint8, mode="r")
    if blob.size < 8:
        raise FormatError(f"{path}: shorter than its header length")
    header_bytes = int(blob[:8].view("<u8")[0])
    if header_bytes > min(blob.size - 8, _HEADER_LIMIT_BYTES):
        raise FormatError(f"{path}: header of {header_bytes} bytes does not fit")
    header = json.loads(bytes(blob[8 : 8 + header_bytes]))
    body = blob[8 + header_bytes :]
    tensors: dict[str, Tensor] = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        if entry["dtype"] not in STORED:
            raise FormatError(f"{path}: {name}: type {entry['dtype']} is not supported")
        stored = STORED[entry["dtype"]]
        begin, end = entry["data_offsets"]
        shape = tuple(entry["shape"])
        wanted = int(np.prod(shape, dtype=np.int64)) * stored.itemsize
        if begin < 0 or end > body.size or end - begin != wanted:
            raise FormatError(f"{path}: {name}: {end - begin} bytes for shape {shape}")
        tensors[name] = Tensor(entry["dtype"], body[begin:end].view(stored).reshape(shape))
    return tensors


def read_folder(folder: pathlib.Path) -> dict[str, Tensor]:
    """All tensors of a checkpoint folder: every shard its index names, or its only files."""
    index = folder / "model.safetensors.index.json"
    if index.exists():
        shards = sorted(set(json.loads(index.read_text())["weight_map"].values()))
    else:
        shards = sorted(path.name for path in folder.glob("*.safetensors"))
    if not shards:
        raise FormatError(f"{folder}: no safetensors file")
    tensors: dict[str, Tensor] = {}
    for shard in shards:
        for name, tensor in read_file(folder / shard).items():
            if name in tensors:
                raise FormatError(f"{folder}: {name} is in two shards")
            tensors[name] = tensor
    return tensors


def write_file(path: pathlib.Path, tensors: dict[str, Tensor]) -> None:
    """Writes tensors in the given order; the header is padded with spaces to 8 bytes."""
    header: dict[str, object] = {}
    offset = 0
    for name, tensor in tensors.items():
        if tensor.data.dtype != STORED[tensor.dtype]:
            raise FormatError(f"{name}: {tensor.data.dtype} elements are not {tensor.dtype}")
        header[name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + tensor.data.nbytes],
        }
        offset += tensor.data.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(len(text).to_bytes(8, "little"))
        out.write(text)
        for tensor in tensors.values():
            out.write(np.ascontiguousarray(tensor.data).tobytes())
