package rpc

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

var testDomain = Domain{Name: "vm", UUID: [16]byte{1, 2, 3, 4, 5, 6, 0x40, 8, 0x80, 10, 11, 12, 13, 14, 15, 16}}

// The same, in hexadecimal, as libvirt's own XDR has them.
const (
	hexDomain = "00000002" + "766d0000" + "0102030405064008800a0b0c0d0e0f10" + "ffffffff"
	hexNone   = "00000000"
)

// daemon answers calls with what answer returns, in place of libvirtd.
func daemon(t *testing.T, answer func(procedure uint32, arguments []byte) []byte) *Conn {
	t.Helper()
	here, there := net.Pipe()
	go func() {
		defer there.Close()
		for {
			h, body, err := readMessage(there)
			if err != nil {
				return
			}
			if _, err := there.Write(answer(h.procedure, body)); err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { here.Close() })
	return &Conn{conn: here}
}

// reply is a message with the given serial number.
func reply(procedure, kind, serial, status uint32, body string) []byte {
	b, err := hex.DecodeString(body)
	if err != nil {
		panic(err)
	}
	var e encoder
	for _, v := range []uint32{uint32(headerSize + len(b)), program, 1, procedure, kind, serial, status} {
		e.uint(v)
	}
	return append(e, b...)
}

// TestCalls compares each call's bytes with those that were computed from libvirt's
// protocol, and decodes an answer.
func TestCalls(t *testing.T) {
	const (
		cookie = "00000003" + "61626300" // abc
		uri    = "0000000b" + "6d6967726174655f" + "75726900" + "00000007" + "00000009" + "756e69783a2f2f2f" + "61000000"
		width  = "00000009" + "62616e6477696474" + "68000000" + "00000004" + "0000000000000020"
		xml    = "0000000f" + "64657374696e6174" + "696f6e5f786d6c00" + "00000007" + "00000003" + "3c612f00"
		disk   = "0000000d" + "6d6967726174655f" + "6469736b73000000" + "00000007" + "00000003" + "76646100"
		name   = "00000010" + "64657374696e6174" + "696f6e5f6e616d65" + "00000007" + "00000002" + "766d0000"
	)
	p := Parameters{DestinationXML: "<a/", URI: "unix:///a", Disks: []string{"vda"}, Bandwidth: 32}
	for phase, tt := range map[string]struct {
		call      func(*Conn) ([]byte, error)
		procedure uint32
		want      string
		answer    string
	}{
		"begin": {
			func(c *Conn) ([]byte, error) {
				return c.Begin(t.Context(), testDomain, p, Live|Protected)
			},
			302, hexDomain + "00000004" + xml + uri + disk + width + "00000101", cookie + "00000003" + "3c612f00",
		},
		"prepare": {
			func(c *Conn) ([]byte, error) {
				return c.Prepare(t.Context(), Parameters{URI: "unix:///a"}, []byte("abc"), Live|Paused)
			},
			303, "00000001" + uri + cookie + "00000021", cookie + hexNone,
		},
		"perform": {
			func(c *Conn) ([]byte, error) {
				return c.Perform(t.Context(), testDomain, Parameters{URI: "unix:///a"}, []byte("abc"), Live|CopyDisks|Unsafe|Converge)
			},
			305, hexDomain + hexNone + "00000001" + uri + cookie + "00002281", cookie,
		},
		"finish": {
			func(c *Conn) ([]byte, error) { return c.Finish(t.Context(), "vm", []byte("abc"), Paused, false) },
			306, "00000001" + name + cookie + "00000020" + "00000000", hexDomain + cookie,
		},
		"confirm": {
			func(c *Conn) ([]byte, error) {
				return []byte("abc"), c.Confirm(t.Context(), testDomain, Parameters{}, nil, Live, true)
			},
			307, hexDomain + hexNone + hexNone + "00000001" + "00000001", "",
		},
		"abort": {
			func(c *Conn) ([]byte, error) { return []byte("abc"), c.Abort(t.Context(), testDomain) },
			164, hexDomain, "",
		},
	} {
		t.Run(phase, func(t *testing.T) {
			c := daemon(t, func(procedure uint32, arguments []byte) []byte {
				if procedure != tt.procedure {
					t.Errorf("procedure %d, want %d", procedure, tt.procedure)
				}
				if diff := cmp.Diff(tt.want, hex.EncodeToString(arguments)); diff != "" {
					t.Error(diff)
				}
				return append(reply(procedure, 2, 1, 0, "0000"), reply(procedure, 1, 1, 0, tt.answer)...)
			})
			got, err := tt.call(c)
			if err != nil || string(got) != "abc" {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	const text = "00000001" + "00000004" + "6f6f7073"
	c := daemon(t, func(p uint32, _ []byte) []byte { return reply(p, 1, 1, 1, "0000002a"+"0000000a"+text) })
	_, err := c.Begin(t.Context(), testDomain, Parameters{}, 0)
	failure, ok := errors.AsType[*Error](err)
	if !ok || failure.Code != 42 || failure.Message != "oops" || !strings.Contains(err.Error(), "begin migration of domain vm") {
		t.Errorf("%v", err)
	}

	answer := "0000005d" + "0000000a" + text
	for _, cancelled := range []bool{true, false} {
		c := daemon(t, func(p uint32, _ []byte) []byte { return reply(p, 1, 1, 1, answer) })
		if _, err := c.Finish(t.Context(), "vm", nil, 0, cancelled); (err == nil) != cancelled {
			t.Errorf("cancelled %v: %v", cancelled, err)
		}
	}
}

// TestBrokenAnswers checks that no answer makes the client wait, or allocate without a
// limit, and that it does not use the connection again.
func TestBrokenAnswers(t *testing.T) {
	for name, answer := range map[string][]byte{
		"too long":         {0xff, 0xff, 0xff, 0xff, 24: 0, 27: 0},
		"too short":        {0, 0, 0, 27, 24: 0, 27: 0},
		"another serial":   bytes.Repeat(reply(302, 1, 9, 0, ""), maxOther),
		"a cookie cut off": reply(302, 1, 1, 0, "00000009"+"61"),
		"a huge cookie":    reply(302, 1, 1, 0, "ffffffff"+"61"),
		"no error":         reply(302, 1, 1, 1, "00"),
	} {
		c := daemon(t, func(uint32, []byte) []byte { return answer })
		if cookie, err := c.Begin(t.Context(), testDomain, Parameters{}, 0); err == nil || cookie != nil {
			t.Errorf("%s: %q", name, cookie)
		}
	}
}

// TestContext ends a call that libvirtd does not answer, and then the connection.
func TestContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer here.Close()
		go func() { _, _ = io.Copy(io.Discard, there) }()
		c := &Conn{conn: here}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Begin(ctx, testDomain, Parameters{}, 0); !errors.Is(err, ErrBroken) || !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if err := c.Abort(t.Context(), testDomain); !errors.Is(err, ErrBroken) {
			t.Error(err)
		}
	})
}

func TestDial(t *testing.T) {
	if _, err := Dial(t.Context(), filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("connected to nothing")
	}
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	want := map[uint32]string{66: "", 1: "00000001" + "0000000e" + "71656d753a2f2f2f" + "73797374656d0000" + hexNone}
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		for serial := uint32(1); ; serial++ {
			h, body, err := readMessage(conn)
			if err != nil {
				return
			}
			if got := hex.EncodeToString(body); got != want[h.procedure] {
				t.Errorf("procedure %d: %s", h.procedure, got)
			}
			_, _ = conn.Write(reply(h.procedure, 1, serial, 0, hexNone))
		}
	}()
	c, err := Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x03abc\x00"), true)
	f.Fuzz(func(t *testing.T, data []byte, failed bool) {
		_, body, err := readMessage(bytes.NewReader(data))
		if err != nil {
			body = data
		}
		d := &decoder{rest: body}
		if got := d.opaque(); len(got) > len(data) {
			t.Error("more than there was")
		}
		if failed {
			_ = d.optional()
		}
		if d.take(16); d.err != nil && d.uint() != 0 {
			t.Error("a value after an error")
		}
	})
}
