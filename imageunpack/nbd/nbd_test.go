package nbd_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/imageunpack/nbd"
	"github.com/nodevirt/nodevirt/test/qemunbd"
)

const changes = "qemu:dirty-bitmap:" + qemunbd.Bitmap

func open(t *testing.T, socket string, contexts ...string) (*nbd.Client, error) {
	t.Helper()
	conn, err := net.Dial("unix", socket)
	assert.NilError(t, err)
	t.Cleanup(func() { conn.Close() })
	return nbd.Open(conn, "data", contexts...)
}

// TestQEMU reads a disk of QEMU's server, and what has changed of it.
func TestQEMU(t *testing.T) {
	socket := qemunbd.New(t).Serve(t.Context(), "data")
	c, err := open(t, socket)
	assert.NilError(t, err)
	assert.Equal(t, c.Size(), int64(qemunbd.Size))
	p := make([]byte, 1<<20)
	for offset, want := range map[int64]byte{0: 1, 2 << 20: 2, 8 << 20: 0, qemunbd.Size - 1<<20: 0} {
		assert.NilError(t, c.Read(p, offset))
		assert.Assert(t, bytes.Count(p, []byte{want}) == len(p), "at %d", offset)
	}
	for _, offset := range []int64{-1, qemunbd.Size, qemunbd.Size - 1} {
		assert.Assert(t, c.Read(p, offset) != nil, "at %d", offset)
	}
	_, err = c.Status(0, 1)
	assert.ErrorContains(t, err, "the client cannot")

	c, err = open(t, socket, nbd.ContextAllocation, changes)
	assert.NilError(t, err)
	assert.ErrorContains(t, c.Read(p, 0), "the client cannot")
	all := map[string]string{}
	for _, name := range []string{nbd.ContextAllocation, changes} {
		for at := int64(0); at < qemunbd.Size; {
			statuses, err := c.Status(at, qemunbd.Size-at)
			assert.NilError(t, err)
			for _, e := range statuses[name] {
				all[name] += strings.Repeat(string(rune('0'+e.Flags)), int(e.Length>>20))
				at += e.Length
			}
		}
	}
	assert.Equal(t, all[changes], "00100000"+"1"+strings.Repeat("0", 55))
	assert.Equal(t, strings.ReplaceAll(all[nbd.ContextAllocation], "2", "3"), "0000"+strings.Repeat("3", 60))

	_, err = open(t, socket, "qemu:dirty-bitmap:other")
	assert.ErrorContains(t, err, "it has 0 of the contexts")
	conn, err := net.Dial("unix", socket)
	assert.NilError(t, err)
	defer conn.Close()
	_, err = nbd.Open(conn, "other")
	assert.ErrorContains(t, err, "it answers with error")
}

// server is what a server sends.
type server struct{ io.Reader }

func (server) Write(p []byte) (int, error) { return len(p), nil }

// hello returns a server's handshake.
func hello(size uint64, contexts ...string) []byte {
	b := binary.BigEndian.AppendUint64(nil, 0x4e42444d41474943)
	b = binary.BigEndian.AppendUint64(b, 0x49484156454f5054)
	b = binary.BigEndian.AppendUint16(b, 3)
	reply := func(option, kind uint32, data []byte) {
		b = binary.BigEndian.AppendUint64(b, 0x0003e889045565a9)
		b = binary.BigEndian.AppendUint32(b, option)
		b = binary.BigEndian.AppendUint32(b, kind)
		b = binary.BigEndian.AppendUint32(b, uint32(len(data)))
		b = append(b, data...)
	}
	if len(contexts) > 0 {
		reply(8, 1, nil)
	}
	for i, name := range contexts {
		reply(10, 4, append(binary.BigEndian.AppendUint32(nil, uint32(i)), name...))
	}
	if len(contexts) > 0 {
		reply(10, 1, nil)
	}
	reply(7, 3, append([]byte{0, 0}, append(binary.BigEndian.AppendUint64(nil, size), 0, 1)...))
	reply(7, 1, nil)
	return b
}

// status returns a chunk of a reply to the first request.
func status(flags, kind uint16, words ...uint32) []byte {
	b := binary.BigEndian.AppendUint32(nil, 0x668e33ef)
	b = binary.BigEndian.AppendUint16(b, flags)
	b = binary.BigEndian.AppendUint16(b, kind)
	b = binary.BigEndian.AppendUint64(b, 1)
	b = binary.BigEndian.AppendUint32(b, uint32(4*len(words)))
	for _, w := range words {
		b = binary.BigEndian.AppendUint32(b, w)
	}
	return b
}

// TestBadServers: what is no answer is an error.
func TestBadServers(t *testing.T) {
	both := hello(1<<20, nbd.ContextAllocation, changes)
	for want, answer := range map[string][]byte{
		"leaves out":           append(bytes.Clone(both), status(1, 5, 0, 512, 0)...),
		"another context":      append(bytes.Clone(both), status(1, 5, 7, 512, 0)...),
		"no bytes":             append(bytes.Clone(both), status(1, 5, 0, 0, 0)...),
		"no statuses":          append(bytes.Clone(both), status(1, 5, 0, 512)...),
		"answers without end":  append(bytes.Clone(both), bytes.Repeat(status(0, 0), 32)...),
		"cut off":              append(bytes.Clone(both), status(1, 1<<15+1, 5)...),
		"EOF":                  both,
		"not one to the reque": append(bytes.Clone(both), bytes.Repeat([]byte{7}, 64)...),
	} {
		c, err := nbd.Open(server{bytes.NewReader(answer)}, "data", nbd.ContextAllocation, changes)
		assert.NilError(t, err)
		if _, err = c.Status(0, 1<<20); err == nil || !strings.Contains(err.Error(), want) && !strings.Contains(err.Error(), "no statuses") {
			t.Errorf("%v; want %q", err, want)
		}
	}
	if _, err := nbd.Open(server{bytes.NewReader(hello(1 << 63))}, "data"); err == nil {
		t.Error("a disk of 8 EiB")
	}
	if _, err := nbd.Open(server{strings.NewReader("HTTP/1.1 400 Bad Request\r\n\r\n")}, "data"); err == nil {
		t.Error("no NBD server")
	}
}

// FuzzServer: no server makes a client fail otherwise than by an error, or return what is not the disk's.
func FuzzServer(f *testing.F) {
	f.Add(append(hello(1<<20, nbd.ContextAllocation, changes), append(status(0, 5, 0, 512, 0, 1<<20, 3), status(1, 5, 1, 1<<20, 1)...)...), true)
	f.Add(append(hello(1<<20), bytes.Repeat([]byte{0}, 64)...), false)
	f.Fuzz(func(t *testing.T, answer []byte, statuses bool) {
		contexts := []string{nbd.ContextAllocation, changes}
		if !statuses {
			contexts = nil
		}
		c, err := nbd.Open(server{bytes.NewReader(answer)}, "data", contexts...)
		if err != nil {
			return
		}
		if !statuses {
			_ = c.Read(make([]byte, 16), 0)
			return
		}
		all, err := c.Status(0, c.Size())
		if err != nil {
			return
		}
		for _, name := range contexts {
			total := int64(0)
			for _, e := range all[name] {
				if total += e.Length; e.Length <= 0 || total > c.Size() {
					t.Fatalf("extents %v of %d bytes", all[name], c.Size())
				}
			}
			if total == 0 {
				t.Fatalf("no extents of %s", name)
			}
		}
	})
}
