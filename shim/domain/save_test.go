package domain

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// save saves a paused guest's memory.
func save(t *testing.T, d *Driver, g guest) []byte {
	t.Helper()
	r, w, err := os.Pipe()
	assert.NilError(t, err)
	defer r.Close()
	data := make(chan []byte, 1)
	go func() {
		all, _ := io.ReadAll(r)
		data <- all
	}()
	err = d.Lifecycle.SaveMemory(t.Context(), g.UUID, w)
	assert.NilError(t, errors.Join(err, w.Close()))
	return <-data
}

// TestSaveAndRestore: a guest goes on after it was saved, and another domain goes on where it was saved.
func TestSaveAndRestore(t *testing.T) {
	startLibvirtd(t)
	d := startDriver(t)
	g := newGuest(t)
	ctx := t.Context()
	bootGuest(t, d, g)

	assert.ErrorContains(t, d.Lifecycle.SaveMemory(ctx, g.UUID, os.Stdout), "not paused")
	assert.NilError(t, d.Lifecycle.Pause(ctx, g.UUID))
	memory := save(t, d, g)
	if len(memory) < 32<<10 {
		t.Fatalf("the stream has %d bytes", len(memory))
	}
	assert.NilError(t, d.Lifecycle.Resume(ctx, g.UUID))
	s, err := d.Observer.State(ctx, g.UUID)
	assert.NilError(t, err)
	assert.Equal(t, s.Status, StatusRunning)

	// Nothing reads: the call ends with its context, and the guest goes on.
	assert.NilError(t, d.Lifecycle.Pause(ctx, g.UUID))
	r, w, err := os.Pipe()
	assert.NilError(t, err)
	short, cancel := context.WithTimeout(ctx, time.Second)
	err = d.Lifecycle.SaveMemory(short, g.UUID, w)
	cancel()
	assert.ErrorIs(t, err, ErrUnavailable)
	assert.NilError(t, errors.Join(w.Close(), r.Close()))
	assert.NilError(t, d.Lifecycle.Resume(ctx, g.UUID))
	press(t, g, "y").Close()
	awaitLog(t, g, "y")

	pipe := filepath.Join(filepath.Dir(g.ConsoleLog), "memory")
	for name, stream := range map[string]io.Reader{
		"cut off": io.MultiReader(bytes.NewReader(memory[:len(memory)/2]), failing{io.ErrUnexpectedEOF}),
		"broken":  io.MultiReader(bytes.NewReader(memory[:len(memory)/2]), failing{errors.New("damaged")}),
		"foreign": strings.NewReader(strings.Repeat("no memory ", 1<<14)),
	} {
		bad := newGuest(t)
		define(t, d, bad)
		short, cancel := context.WithTimeout(ctx, time.Minute)
		_, err = d.Lifecycle.Restore(short, bad.UUID, bad.files, stream, pipe)
		if err == nil || short.Err() != nil {
			t.Errorf("%s: %v, %v", name, err, short.Err())
		}
		cancel()
		if name == "broken" {
			assert.ErrorContains(t, err, "damaged")
		}
	}

	other := newGuest(t)
	define(t, d, other)
	pid, err := d.Lifecycle.Restore(ctx, other.UUID, other.files, bytes.NewReader(memory), pipe)
	assert.NilError(t, err)
	_, err = os.Stat(pipe)
	assert.ErrorIs(t, err, os.ErrNotExist)
	s, err = d.Observer.State(ctx, other.UUID)
	assert.NilError(t, err)
	assert.Equal(t, s.Status, StatusPaused)
	assert.Equal(t, s.PID, pid)
	wantConfined(t, other, pid)
	assert.NilError(t, d.Lifecycle.Resume(ctx, other.UUID))
	press(t, other, "x")
	awaitLog(t, other, "x")
	text, err := os.ReadFile(other.ConsoleLog)
	assert.NilError(t, err)
	if strings.Contains(string(text), greeting) {
		t.Errorf("the guest has booted: %q", text)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
