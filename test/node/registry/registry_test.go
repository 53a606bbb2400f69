package registry_test

import (
	"errors"
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/node/registry"
)

// serve starts a registry and returns its host and port.
func serve(t *testing.T, dir string) string {
	t.Helper()
	h, err := registry.Handler(dir)
	assert.NilError(t, err)
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func tag(t *testing.T, host string) name.Tag {
	t.Helper()
	ref, err := name.NewTag(host + "/some/thing:1")
	assert.NilError(t, err)
	return ref
}

func TestImagesSurviveARestart(t *testing.T) {
	dir := t.TempDir()
	want, err := random.Image(1000, 2)
	assert.NilError(t, err)
	assert.NilError(t, remote.Write(tag(t, serve(t, dir)), want, remote.WithContext(t.Context())))

	got, err := remote.Image(tag(t, serve(t, dir)), remote.WithContext(t.Context()))
	assert.NilError(t, err)
	wantDigest, err := want.Digest()
	assert.NilError(t, err)
	if gotDigest, err := got.Digest(); err != nil || gotDigest != wantDigest {
		t.Fatalf("digest after a restart: %s, %v; want %s", gotDigest, err, wantDigest)
	}
	layers, err := got.Layers()
	assert.NilError(t, err)
	for _, l := range layers {
		r, err := l.Compressed()
		if err != nil {
			t.Fatalf("read layer after a restart: %v", err)
		}
		_, err = io.Copy(io.Discard, r) // checks the digest
		if err := errors.Join(err, r.Close()); err != nil {
			t.Fatalf("read layer after a restart: %v", err)
		}
	}
}

func TestAnIndexSurvivesARestart(t *testing.T) {
	dir := t.TempDir()
	want, err := random.Index(100, 1, 3)
	assert.NilError(t, err)
	assert.NilError(t, remote.WriteIndex(tag(t, serve(t, dir)), want, remote.WithContext(t.Context())))
	if _, err := remote.Index(tag(t, serve(t, dir)), remote.WithContext(t.Context())); err != nil {
		t.Fatal(err)
	}
}
