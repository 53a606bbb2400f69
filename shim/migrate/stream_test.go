package migrate_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/nodevirt/nodevirt/shim/tpm"
	"github.com/nodevirt/nodevirt/test/needs"
	"github.com/nodevirt/nodevirt/test/wait"
)

// TestStream: QEMU's stream brings the state of a TPM to one that has just started on the
// target, and the firmware's variables to the target's file when its guest is resumed.
func TestStream(t *testing.T) {
	needs.Parts(t, "swtpm, QEMU, and root")
	dir, err := os.MkdirTemp("", "s") // short enough for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	all, err := tpm.New("swtpm", filepath.Join(dir, "tpms"))
	if err == nil {
		err = os.Chmod(dir, 0o711)
	}
	if err != nil {
		t.Fatal(err)
	}
	const size = 128 << 10
	for name, content := range map[string][]byte{
		"code": make([]byte, 2*size), "from": bytes.Repeat([]byte("variable"), size/8), "to": make([]byte, size),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stream := "unix:" + filepath.Join(dir, "stream")
	start := func(id string, args ...string) *machine {
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), wait.Patience)
			defer cancel()
			if err := all.Remove(ctx, id); err != nil {
				t.Error(err)
			}
		})
		if _, err := all.Start(t.Context(), tpm.Owner{ID: id, UID: 64003, Client: 64004}, func(int) error { return nil }); err != nil {
			t.Fatal(err)
		}
		return qemu(t, dir, id, all.Socket(id), args...)
	}
	state := func(id string) []byte {
		data, _ := os.ReadFile(filepath.Join(dir, "tpms", id, "state", "tpm2-00.permall"))
		return data
	}
	source := start("from")
	wait.Until(t, "the source's TPM has a state", func() bool { return len(state("from")) > 0 })
	target := start("to", "-incoming", stream)
	source.execute(t, "migrate", map[string]string{"uri": stream}, nil)
	wait.Until(t, "the source has sent its guest", func() bool {
		var answer struct{ Status string }
		source.execute(t, "query-migrate", nil, &answer)
		if answer.Status == "failed" {
			t.Fatal("the migration failed")
		}
		return answer.Status == "completed"
	})
	wait.Until(t, "the target's TPM has a state", func() bool { return len(state("to")) > 0 })
	if got := state("to"); !bytes.Equal(got, state("from")) {
		t.Errorf("the target's TPM has a state of %d bytes, the source's of %d; they differ", len(got), len(state("from")))
	}
	target.execute(t, "cont", nil, nil)
	wait.Until(t, "the target writes the variables", func() bool {
		got, err := os.ReadFile(filepath.Join(dir, "to"))
		return err == nil && bytes.Equal(got, bytes.Repeat([]byte("variable"), size/8))
	})
}

// machine is a QEMU whose guest does not run.
type machine struct {
	conn net.Conn
	from *json.Decoder
}

// qemu starts a QEMU with a TPM, whose firmware's variables are in the file id.
func qemu(t *testing.T, dir, id, socket string, args ...string) *machine {
	t.Helper()
	qmp := filepath.Join(dir, id+"-qmp")
	out := &bytes.Buffer{}
	c := exec.CommandContext(t.Context(), "qemu-system-x86_64", append([]string{
		"-machine", "q35,accel=tcg,usb=off,pflash0=code,pflash1=variables", "-m", "16", "-display", "none", "-nodefaults", "-S",
		"-blockdev", "driver=file,node-name=code,read-only=on,filename=" + filepath.Join(dir, "code"),
		"-blockdev", "driver=file,node-name=variables,filename=" + filepath.Join(dir, id),
		"-chardev", "socket,id=tpm,path=" + socket, "-tpmdev", "emulator,id=tpm0,chardev=tpm", "-device", "tpm-tis,tpmdev=tpm0",
		"-qmp", "unix:" + qmp + ",server=on,wait=off",
	}, args...)...)
	c.Stderr = out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
		if t.Failed() {
			t.Log(out.String())
		}
	})
	m := &machine{}
	wait.Until(t, "QEMU listens", func() bool {
		var err error
		m.conn, err = net.Dial("unix", qmp)
		return err == nil
	})
	t.Cleanup(func() { m.conn.Close() })
	if err := m.conn.SetDeadline(time.Now().Add(wait.Patience)); err != nil {
		t.Fatal(err)
	}
	m.from = json.NewDecoder(m.conn)
	m.execute(t, "qmp_capabilities", nil, nil)
	return m
}

// execute runs a QMP command, and skips what comes before its answer.
func (m *machine) execute(t *testing.T, command string, arguments, answer any) {
	t.Helper()
	request, err := json.Marshal(map[string]any{"execute": command, "arguments": arguments})
	if arguments == nil {
		request = fmt.Appendf(nil, `{"execute": %q}`, command)
	}
	if err == nil {
		_, err = m.conn.Write(request)
	}
	for err == nil {
		var reply struct{ Return, Error json.RawMessage }
		if err = m.from.Decode(&reply); err != nil {
			break
		}
		switch {
		case reply.Error != nil:
			t.Fatalf("%s: %s", command, reply.Error)
		case reply.Return != nil && answer != nil:
			if err := json.Unmarshal(reply.Return, answer); err != nil {
				t.Fatal(err)
			}
			return
		case reply.Return != nil:
			return
		}
	}
	t.Fatalf("%s: %v", command, err)
}
