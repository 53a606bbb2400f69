package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/controller/export/server"
	"github.com/nodevirt/nodevirt/test/qemunbd"
)

// serveBackup serves a backup, and nothing else.
func serveBackup(t *testing.T, b server.Backup) *rig {
	t.Helper()
	return serveConfig(t, server.Config{Name: "out", Backup: &b})
}

// extents returns a map as lines, and where the next page begins.
func (g *rig) extents(path string) (lines string, next *int64) {
	g.t.Helper()
	var page struct {
		Extents []struct {
			Offset, Length int64
			Type           uint32
			Description    string
		} `json:"extents"`
		Next *int64 `json:"next_offset"`
	}
	assert.NilError(g.t, json.Unmarshal(g.get(path, http.StatusOK), &page))
	for _, e := range page.Extents {
		lines += fmt.Sprintf("%d+%d %d %s\n", e.Offset>>20, e.Length>>20, e.Type, e.Description)
	}
	return lines, page.Next
}

// TestBackup: clients read the disks of a backup, and which parts have data or have changed, with
// KubeVirt's parameters and words.
func TestBackup(t *testing.T) {
	const data, extents = "/exports/root/data", "/exports/root/map"
	disk := qemunbd.New(t)
	socket := disk.Serve(t.Context(), "root")
	g := serveBackup(t, server.Backup{Socket: socket, Volumes: []string{"root"}, Changes: "qemu:dirty-bitmap:" + qemunbd.Bitmap})
	content := g.get(data, http.StatusOK)
	assert.Equal(t, len(content), qemunbd.Size)
	assert.Equal(t, bytes.Count(content, []byte{1}), 3<<20)
	assert.Equal(t, bytes.Count(content, []byte{2}), 1<<20)
	for _, query := range []string{"?offset=2097152&length=1048576", "?offset=2097152&length=1048576&page_size=1"} {
		assert.Assert(t, bytes.Equal(g.get(data+query, http.StatusOK), content[2<<20:3<<20]))
	}
	assert.Equal(t, len(g.get(data+"?offset=67108863&length=100", http.StatusOK)), 1)
	for _, query := range []string{"?offset=67108864", "?offset=-1", "?length=x", "?offset=99999999999999999999", "?page_size=0"} {
		g.get(data+query, http.StatusBadRequest)
	}
	head := g.ask(http.MethodHead, data, "x-kubevirt-export-token", token)
	assert.Equal(t, head.ContentLength, int64(qemunbd.Size))
	assert.Equal(t, g.ask(http.MethodPost, data, "x-kubevirt-export-token", token).StatusCode, http.StatusMethodNotAllowed)
	assert.Equal(t, g.ask(http.MethodGet, data, "x-kubevirt-export-token", "wrong").StatusCode, http.StatusUnauthorized)
	assert.Equal(t, g.ask(http.MethodGet, extents).StatusCode, http.StatusUnauthorized)
	assert.Equal(t, g.ask(http.MethodGet, "/exports/other/data", "x-kubevirt-export-token", token).StatusCode, http.StatusNotFound)

	lines, next := g.extents(extents)
	assert.Equal(t, lines, "0+2 0 clean\n2+1 1 dirty\n3+1 0 clean\n4+4 2 zero\n8+1 3 dirty,zero\n9+55 2 zero\n")
	assert.Assert(t, next == nil)
	lines, next = g.extents(extents + "?page_size=2&offset=1048576")
	assert.Equal(t, lines, "1+1 0 clean\n2+1 1 dirty\n")
	assert.Equal(t, *next, int64(3<<20))
	lines, next = g.extents(extents + fmt.Sprintf("?offset=%d&length=%d", *next, 2<<20))
	assert.Equal(t, lines, "3+1 0 clean\n4+1 2 zero\n")
	assert.Assert(t, next == nil)

	full := serveBackup(t, server.Backup{Socket: socket, Volumes: []string{"root"}})
	lines, _ = full.extents(extents)
	assert.Equal(t, lines[:len("0+4 0 data\n")], "0+4 0 data\n")
}

// TestBackupEnds: a client takes no part for the whole, and learns that there is no backup.
func TestBackupEnds(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	defer end()
	socket := qemunbd.New(t).Serve(ctx, "root")
	g := serveBackup(t, server.Backup{Socket: socket, Volumes: []string{"root"}})
	answer := g.ask(http.MethodGet, "/exports/root/data", "x-kubevirt-export-token", token)
	assert.Equal(t, answer.StatusCode, http.StatusOK)
	end()
	n, err := io.Copy(io.Discard, answer.Body)
	assert.Assert(t, err != nil && n < qemunbd.Size, "%d bytes, %v", n, err)
	again := g.ask(http.MethodGet, "/exports/root/map", "x-kubevirt-export-token", token)
	assert.Equal(t, again.StatusCode, http.StatusServiceUnavailable)
	assert.Assert(t, again.Header.Get("Retry-After") != "")
}
