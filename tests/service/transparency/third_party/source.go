package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/tlog"
)

const height = 8

// source reads the resources of a log from a folder or over HTTP.
type source struct {
	location string
	header   string
	client   *http.Client
}

func newSource(location, header string) *source {
	return &source{strings.TrimSuffix(location, "/"), header, &http.Client{Timeout: time.Minute}}
}

func (s *source) read(path, contentType string) ([]byte, error) {
	if !strings.Contains(s.location, "://") {
		return os.ReadFile(filepath.Join(s.location, filepath.FromSlash(path)))
	}
	request, err := http.NewRequest("GET", s.location+"/"+path, nil)
	if err != nil {
		return nil, err
	}
	// Checkpoints and hash tiles must be readable without credentials.
	if name, value, ok := strings.Cut(s.header, ":"); ok && strings.HasPrefix(path, "tile/entries/") {
		request.Header.Set(name, strings.TrimSpace(value))
	}
	response, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusNotFound {
		return nil, fmt.Errorf("%s: %w", path, fs.ErrNotExist)
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: HTTP status %s", path, response.Status)
	}
	if got := response.Header.Get("Content-Type"); got != contentType {
		return nil, fmt.Errorf("%s: content type is %q, want %q", path, got, contentType)
	}
	return io.ReadAll(response.Body)
}

func (s *source) checkpoint() ([]byte, error) {
	return s.read("checkpoint", "text/plain; charset=utf-8")
}

// tile reads a tile; the path differs from that of the checksum database.
func (s *source) tile(t tlog.Tile) ([]byte, error) {
	path := strings.Replace(t.Path(), fmt.Sprintf("tile/%d/", height), "tile/", 1)
	path = strings.Replace(path, "tile/data/", "tile/entries/", 1)
	data, err := s.read(path, "application/octet-stream")
	if err == nil && t.L >= 0 && len(data) != t.W*tlog.HashSize {
		return nil, fmt.Errorf("%s: %d bytes, want %d", path, len(data), t.W*tlog.HashSize)
	}
	return data, err
}

// Height, ReadTiles and SaveTiles implement tlog.TileReader.
func (s *source) Height() int                         { return height }
func (s *source) SaveTiles(_ []tlog.Tile, _ [][]byte) {}

func (s *source) ReadTiles(tiles []tlog.Tile) ([][]byte, error) {
	read := make([][]byte, len(tiles))
	for i, t := range tiles {
		var err error
		if read[i], err = s.tile(t); err != nil {
			return nil, err
		}
	}
	return read, nil
}

func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
