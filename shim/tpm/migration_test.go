package tpm_test

import (
	"bytes"
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

// TestMigration: QEMU's stream brings the state of a TPM to one that has just started on
// the target. No CPU runs.
func TestMigration(t *testing.T) {
	needs.Parts(t, "swtpm, QEMU, and root")
	all, dir := tpms(t)
	stream := "unix:" + filepath.Join(filepath.Dir(dir), "stream")
	from, to := tpm.Owner{ID: "from", UID: uid, Client: client}, tpm.Owner{ID: "to", UID: uid, Client: client}
	for _, o := range []tpm.Owner{from, to} {
		if _, err := all.Start(t.Context(), o, ignore); err != nil {
			t.Fatal(err)
		}
	}
	source := qemu(t, all.Socket(from.ID))
	state := func(o tpm.Owner) []byte {
		data, _ := os.ReadFile(filepath.Join(dir, o.ID, "state", "tpm2-00.permall"))
		return data
	}
	wait.Until(t, "the source's TPM has a state", func() bool { return len(state(from)) > 0 })
	qemu(t, all.Socket(to.ID), "-incoming", stream)
	source.execute(t, "migrate", map[string]string{"uri": stream}, nil)
	wait.Until(t, "the source has sent its guest", func() bool {
		var answer struct{ Status string }
		source.execute(t, "query-migrate", nil, &answer)
		if answer.Status == "failed" {
			t.Fatal("the migration failed")
		}
		return answer.Status == "completed"
	})
	wait.Until(t, "the target's TPM has a state", func() bool { return len(state(to)) > 0 })
	if got := state(to); !bytes.Equal(got, state(from)) {
		t.Errorf("the target's state has %d bytes, the source's %d; they differ", len(got), len(state(from)))
	}
}

// machine is a QEMU whose guest does not run.
type machine struct {
	conn net.Conn
	from *json.Decoder
}

// qemu starts a QEMU with a TPM.
func qemu(t *testing.T, socket string, args ...string) *machine {
	t.Helper()
	dir, err := os.MkdirTemp("", "qemu-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	qmp := filepath.Join(dir, "qmp")
	out := &bytes.Buffer{}
	c := exec.CommandContext(t.Context(), "qemu-system-x86_64", append([]string{
		"-machine", "q35,accel=tcg,usb=off", "-m", "16", "-display", "none", "-nodefaults", "-S",
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
