package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/mod/sumdb/tlog"
)

type logResult struct {
	*checkpoint
	Tiles          int     `json:"tiles"`
	Proofs         int64   `json:"proofs"`
	ConsistentWith []int64 `json:"consistent_with"`
}

// checkLog verifies a whole log: its checkpoint, the inclusion of every entry,
// every tile, and the consistency with older checkpoints.
func checkLog(keys *keys, src *source, old []string) (*logResult, error) {
	text, err := src.checkpoint()
	if err != nil {
		return nil, err
	}
	c, err := keys.open(text)
	if err != nil {
		return nil, err
	}
	result := &logResult{checkpoint: c, ConsistentWith: []int64{}}

	reader, err := recompute(src, c.tree)
	if err != nil {
		return nil, err
	}
	if result.Proofs, err = proveEntries(c.tree, reader); err != nil {
		return nil, err
	}
	if result.Tiles, err = compareTiles(src, c.tree.N, c.tree.N, reader); err != nil {
		return nil, err
	}
	for _, path := range old {
		size, err := checkOlder(keys, src, c.tree, path, reader)
		if err != nil {
			return nil, fmt.Errorf("older checkpoint %s: %w", path, err)
		}
		result.ConsistentWith = append(result.ConsistentWith, size)
	}
	return result, nil
}

// recompute hashes every entry, compares it with the leaf hash in the tile,
// which is authenticated by the root, and returns all hashes of the tree.
func recompute(src *source, tree tlog.Tree) (tlog.HashReader, error) {
	authenticated := tlog.TileHashReader(tree, src)
	var hashes []tlog.Hash
	stored := tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		found := make([]tlog.Hash, len(indexes))
		for i, index := range indexes {
			found[i] = hashes[index]
		}
		return found, nil
	})
	for first := int64(0); first < tree.N; first += 1 << height {
		width := min(tree.N-first, 1<<height)
		data, err := src.tile(tlog.Tile{H: height, L: -1, N: first >> height, W: int(width)})
		if err != nil {
			return nil, err
		}
		indexes := make([]int64, width)
		for i := range indexes {
			indexes[i] = tlog.StoredHashIndex(0, first+int64(i))
		}
		leaves, err := authenticated.ReadHashes(indexes)
		if err != nil {
			return nil, err
		}
		for i, leaf := range leaves {
			if len(data) < 2 || len(data) < 2+int(binary.BigEndian.Uint16(data)) {
				return nil, fmt.Errorf("entry bundle ends within entry %d", first+int64(i))
			}
			end := 2 + int(binary.BigEndian.Uint16(data))
			entry := data[2:end]
			data = data[end:]
			if tlog.RecordHash(entry) != leaf {
				return nil, fmt.Errorf("entry %d does not have the hash in its tile", first+int64(i))
			}
			more, err := tlog.StoredHashes(first+int64(i), entry, stored)
			if err != nil {
				return nil, err
			}
			hashes = append(hashes, more...)
		}
		if len(data) > 0 {
			return nil, fmt.Errorf("entry bundle %d has %d bytes after its entries", first>>height, len(data))
		}
	}
	root, err := tlog.TreeHash(tree.N, stored)
	if err != nil {
		return nil, err
	}
	if root != tree.Hash {
		return nil, fmt.Errorf("root hash of the entries is %v, the checkpoint has %v", root, tree.Hash)
	}
	return stored, nil
}

// proveEntries makes and checks the inclusion proof of every entry.
func proveEntries(tree tlog.Tree, reader tlog.HashReader) (int64, error) {
	for n := int64(0); n < tree.N; n++ {
		proof, err := tlog.ProveRecord(tree.N, n, reader)
		if err != nil {
			return n, err
		}
		leaf, err := reader.ReadHashes([]int64{tlog.StoredHashIndex(0, n)})
		if err != nil {
			return n, err
		}
		if err := tlog.CheckRecord(proof, tree.N, tree.Hash, n, leaf[0]); err != nil {
			return n, fmt.Errorf("entry %d: %w", n, err)
		}
	}
	return tree.N, nil
}

// compareTiles compares the tiles of a tree of this size, upper levels
// included, with the hashes of the entries. A partial tile may be missing if
// the log has grown since then and its full tile exists.
func compareTiles(src *source, size, latest int64, reader tlog.HashReader) (int, error) {
	compared := 0
	for _, t := range tlog.NewTiles(height, 0, size) {
		data, err := src.tile(t)
		if full := (t.N + 1) << (height * (t.L + 1)); isMissing(err) && t.W < 1<<height && full <= latest {
			t.W = 1 << height
			data, err = src.tile(t)
		}
		if err != nil {
			return compared, err
		}
		want, err := tlog.ReadTileData(t, reader)
		if err != nil {
			return compared, err
		}
		if !bytes.Equal(data, want) {
			return compared, fmt.Errorf("%s does not have the hashes of the entries", t.Path())
		}
		compared++
	}
	return compared, nil
}

// checkOlder verifies an older checkpoint, the consistency proof from it to
// the latest one, and the tiles that a reader of the older one needs.
func checkOlder(keys *keys, src *source, tree tlog.Tree, path string, reader tlog.HashReader) (int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	older, err := keys.open(text)
	if err != nil {
		return 0, err
	}
	if older.Size > tree.N {
		return 0, fmt.Errorf("it has %d entries, the log has only %d", older.Size, tree.N)
	}
	if older.Size == 0 {
		if root, err := tlog.TreeHash(0, reader); err != nil || root != older.tree.Hash {
			return 0, fmt.Errorf("the root hash is not that of the empty tree")
		}
		return 0, nil
	}
	proof, err := tlog.ProveTree(tree.N, older.Size, tlog.TileHashReader(tree, src))
	if err != nil {
		return 0, err
	}
	if err := tlog.CheckTree(proof, tree.N, tree.Hash, older.Size, older.tree.Hash); err != nil {
		return 0, err
	}
	_, err = compareTiles(src, older.Size, tree.N, reader)
	return older.Size, err
}
