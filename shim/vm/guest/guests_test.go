package guest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/netsetup"
	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/stream"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
	"github.com/nodevirt/nodevirt/shim/vm/vmtest"
	"github.com/nodevirt/nodevirt/test/wait"
)

func wantError(t *testing.T, err error, words ...string) {
	t.Helper()
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("error %v; want %q", err, w)
		}
	}
}

func TestRunning(t *testing.T) {
	n := newNode(t)
	v := n.add("a", record.Running)
	n.add("b", record.Exited)
	n.add("c", record.Created)
	if id, err := n.Running("a"); err != nil || id != v.Record().ID {
		t.Errorf("%s, %v", id, err)
	}
	for id, words := range map[string]string{"b": "container is in CONTAINER_EXITED state", "c": "container is in CONTAINER_CREATED state", "x": "not found"} {
		_, err := n.Running(id)
		wantError(t, err, words)
	}
	if !n.RunsIn("pod-a") || n.RunsIn("pod-b") {
		t.Error("RunsIn does not know which VM runs")
	}
}

func TestExec(t *testing.T) {
	n := newNode(t)
	v := n.add("a", record.Running)
	n.serve(t, v, map[string]string{
		"guest-exec":        `{"pid": 7}`,
		"guest-exec-status": `{"exited": true, "exitcode": 3, "out-data": "b3V0", "err-data": "ZXJy", "out-truncated": true}`,
	})
	if err := n.CheckExec("a", &runtimeapi.ExecRequest{Cmd: []string{"true"}}); err != nil {
		t.Error(err)
	}
	var out, stderr bytes.Buffer
	err := n.Exec(t.Context(), "a", []string{"cat"}, stream.Streams{In: strings.NewReader("x"), Out: &out, Err: &stderr})
	if exit, ok := errors.AsType[*stream.ExitError](err); !ok || exit.Code != 3 {
		t.Errorf("error %v", err)
	}
	if out.String() != "out" || !strings.HasPrefix(stderr.String(), "nodevirt: the guest agent keeps no more than the first 3 bytes of stdout\n") ||
		!strings.HasSuffix(stderr.String(), "err") {
		t.Errorf("stdout %q, stderr %q", out.String(), stderr.String())
	}
	r, err := n.ExecSync(t.Context(), "a", []string{"cat"}, time.Minute)
	if err != nil || r.GetExitCode() != 3 || string(r.GetStdout()) != "out" || string(r.GetStderr()) != "err" {
		t.Errorf("%v, %v", r, err)
	}
	err = n.Exec(t.Context(), "a", []string{"cat"}, stream.Streams{Out: broken{}})
	wantError(t, err, `exec in VM container "vm" of pod ns/pod-a: deliver its stdout: the client is gone`)
	err = n.Exec(t.Context(), "a", []string{"cat"}, stream.Streams{In: broken{}})
	wantError(t, err, "read its input: the client is gone")
	_, err = n.ExecSync(t.Context(), "x", nil, 0)
	wantError(t, err, "not found", n.Exec(t.Context(), "x", nil, stream.Streams{}).Error())
}

// broken is the stream of a client that is gone.
type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("the client is gone") }
func (broken) Read([]byte) (int, error)  { return 0, errors.New("the client is gone") }

// TestNoProgram: a probe whose program the guest does not have has a shell's code, which counts as a failure.
func TestNoProgram(t *testing.T) {
	n := newNode(t)
	n.serve(t, n.add("a", record.Running), map[string]string{"guest-exec": "fails Failed to execute child process"})
	r, err := n.ExecSync(t.Context(), "a", []string{"exit", "1"}, time.Minute)
	if err != nil || r.GetExitCode() != 127 || !strings.Contains(string(r.GetStderr()), `"exit" cannot be run in the guest`) {
		t.Errorf("%v, %v", r, err)
	}
	err = n.Exec(t.Context(), "a", []string{"exit", "1"}, stream.Streams{})
	wantError(t, err, `"exit" cannot be run in the guest`)
}

func TestExecTimesOut(t *testing.T) {
	n := newNode(t)
	n.serve(t, n.add("a", record.Running), map[string]string{"guest-exec": `once {"pid": 7}`, "guest-exec-status": `{"exited": false}`})
	_, err := n.ExecSync(t.Context(), "a", []string{"sleep"}, 20*time.Millisecond)
	wantError(t, err, "timeout 20ms exceeded")
}

func TestExecWithoutAnAgent(t *testing.T) {
	n := newNode(t)
	v := n.add("a", record.Running)
	n.agents.Absent(v)
	wantError(t, n.CheckExec("a", &runtimeapi.ExecRequest{Cmd: []string{"true"}}), `exec in VM container "vm" of pod ns/pod-a`, agent.ErrAbsent.Error())
	wantError(t, n.CheckExec("x", &runtimeapi.ExecRequest{}), "not found")
	_, err := n.ExecSync(t.Context(), "a", []string{"true"}, 0)
	wantError(t, err, agent.ErrAbsent.Error())
	n.agents.Of(v).Port.Report(agent.Present) // but there is no socket
	r := v.Record()
	r.Domain.PID = 0
	v.Publish(r)
	_, err = n.ExecSync(t.Context(), "a", []string{"true"}, 0)
	wantError(t, err, "the VM ended")
	resize := make(chan stream.Size)
	close(resize)
	err = n.Exec(t.Context(), "a", []string{"sh"}, stream.Streams{TTY: true, Resize: resize})
	wantError(t, err, "the VM ended")
}

// TestPostStart: a command without a timeout, right after the start, is run once the guest's agent is there, and
// not at all if the guest ends before.
func TestPostStart(t *testing.T) {
	n := newNode(t)
	begin := func(letter string) (v *table.VM, done <-chan error) {
		v = n.add(letter, record.Running)
		r := v.Record()
		r.StartedAt = time.Now()
		v.Publish(r)
		n.agents.Absent(v)
		result := make(chan error, 1)
		go func() {
			reply, err := n.ExecSync(t.Context(), letter, []string{"true"}, 0)
			if err == nil && reply.GetExitCode() != 3 {
				err = fmt.Errorf("reply %v", reply)
			}
			result <- err
		}()
		select {
		case err := <-result:
			t.Errorf("did not wait: %v", err)
		case <-time.After(2 * agentPause):
		}
		return v, result
	}
	v, done := begin("a")
	n.serve(t, v, map[string]string{"guest-exec": `{"pid": 7}`, "guest-exec-status": `{"exited": true, "exitcode": 3}`})
	n.agents.Of(v).Port.Report(agent.Present)
	if err := <-done; err != nil {
		t.Error(err)
	}
	_, err := n.ExecSync(t.Context(), "a", []string{"true"}, time.Minute) // a probe's, which has no reason to wait
	if err != nil {
		t.Error(err)
	}

	v, done = begin("b")
	r := v.Record()
	r.State = record.Exited
	v.Publish(r)
	wantError(t, <-done, agent.ErrAbsent.Error())
}

func TestSizes(t *testing.T) {
	from := make(chan stream.Size, 1)
	from <- stream.Size{Width: 80, Height: 25}
	to := sizes(t.Context(), from)
	if got := <-to; got != (agent.Size{Rows: 25, Columns: 80}) {
		t.Errorf("size %+v", got)
	}
	close(from)
	if _, open := <-to; open {
		t.Error("there is a size after the last")
	}
	if sizes(t.Context(), nil) != nil {
		t.Error("a client without sizes has some")
	}
}

func TestControls(t *testing.T) {
	n := newNode(t)
	n.add("a", record.Running)
	for _, name := range []string{"pause", "unpause", "reset", "reboot", "power-off"} {
		if r, err := n.ExecSync(t.Context(), "a", []string{"nodevirt.io/" + name}, 0); err != nil || r.GetExitCode() != 0 {
			t.Errorf("%s: %v, %v", name, r, err)
		}
	}
	if want := []string{"pause uuid-a", "resume uuid-a", "reset uuid-a", "reboot uuid-a", "destroy uuid-a"}; !slices.Equal(n.domains.done, want) {
		t.Errorf("done: %v", n.domains.done)
	}
	if err := n.CheckExec("a", &runtimeapi.ExecRequest{Cmd: []string{"nodevirt.io/pause"}}); err != nil {
		t.Error(err)
	}
	for words, command := range map[string][]string{
		`there is no machine control "nodevirt.io/x": after nodevirt.io/ comes one of backup, backup-cancel, backup-finish, backup-serve, backup-status, card-attach, card-detach, card-status, connect, console`: {"nodevirt.io/x"},
		"the machine control nodevirt.io/pause takes no arguments":  {"nodevirt.io/pause", "now"},
		"the machine control nodevirt.io/freeze takes one argument": {"nodevirt.io/freeze"},
		`freeze: "soon" is not a duration such as 10s`:              {"nodevirt.io/freeze", "soon"},
	} {
		_, err := n.ExecSync(t.Context(), "a", command, 0)
		wantError(t, err, words)
		wantError(t, n.CheckExec("a", &runtimeapi.ExecRequest{Cmd: command}), words)
		if err := n.Exec(t.Context(), "a", command, stream.Streams{}); !errors.Is(err, vmerrors.ErrInvalid) {
			t.Errorf("error %v", err)
		}
	}
	n.domains.err = domain.ErrNotRunning
	wantError(t, n.Exec(t.Context(), "a", []string{"nodevirt.io/pause"}, stream.Streams{}), "domain is not running")
}

// TestControlsOfMigrations: package move carries them out, and a guest that another node may
// run is not resumed, nor one that is still to come.
func TestControlsOfMigrations(t *testing.T) {
	n := newNode(t)
	v := n.add("a", record.Running)
	r, err := n.ExecSync(t.Context(), "a", []string{"nodevirt.io/migrate-status", "{}"}, 0)
	if err != nil || string(r.GetStdout()) != "migrate-status {}" {
		t.Errorf("%v, %v", r, err)
	}
	wantError(t, n.CheckExec("a", &runtimeapi.ExecRequest{Cmd: []string{"nodevirt.io/migrate-send"}}), "takes one argument")
	r, err = n.ExecSync(t.Context(), "a", []string{"nodevirt.io/disk-status", "{}"}, 0)
	if err != nil || string(r.GetStdout()) != "disk-status {}" {
		t.Errorf("an order about a disk: %v, %v", r, err)
	}
	n.moves.SetElsewhere(v.Record().ID, true)
	_, err = n.ExecSync(t.Context(), "a", []string{"nodevirt.io/unpause"}, 0)
	wantError(t, err, "the guest is moving to another node")
	waits := v.Record()
	waits.Incoming = "0d2c5a5e"
	v.Publish(waits)
	for _, name := range []string{"pause", "unpause", "reset", "reboot"} {
		_, err := n.ExecSync(t.Context(), "a", []string{"nodevirt.io/" + name}, 0)
		wantError(t, err, "the VM waits for its guest, in migration 0d2c5a5e")
	}
	waits.Incoming, waits.Saving = "", &record.Saving{}
	v.Publish(waits)
	for _, name := range []string{"pause", "unpause", "reset", "reboot"} {
		_, err := n.ExecSync(t.Context(), "a", []string{"nodevirt.io/" + name}, 0)
		wantError(t, err, "while its memory is saved")
	}
	if len(n.domains.done) > 0 {
		t.Errorf("done: %v", n.domains.done)
	}
}

func TestScreenshot(t *testing.T) {
	n := newNode(t)
	v := n.add("a", record.Running)
	var out bytes.Buffer
	wantError(t, n.Exec(t.Context(), "a", []string{"nodevirt.io/screenshot"}, stream.Streams{Out: &out}), "the VM has no display")
	r := v.Record()
	r.Spec.Display = true
	v.Publish(r)
	n.domains.picture = []byte("P6\n1 1\n255\nabc")
	if err := n.Exec(t.Context(), "a", []string{"nodevirt.io/screenshot"}, stream.Streams{Out: &out}); err != nil || !strings.HasPrefix(out.String(), "\x89PNG") {
		t.Errorf("%q, %v", out.String(), err)
	}
	n.domains.err = errors.New("no graphics")
	wantError(t, n.Exec(t.Context(), "a", []string{"nodevirt.io/screenshot"}, stream.Streams{}), "no graphics")
}

func TestQueries(t *testing.T) {
	n := newNode(t)
	n.serve(t, n.add("a", record.Running), map[string]string{
		"guest-ping":         `{}`,
		"guest-info":         `{"version": "8.2", "supported_commands": [{"name": "guest-ping", "enabled": true}]}`,
		"guest-get-users":    `[{"user": "root", "login-time": 1.5}]`,
		"guest-get-fsinfo":   `[{"name": "vda1", "mountpoint": "/", "type": "ext4", "used-bytes": 1, "total-bytes": 2, "disk": [{"bus-type": "virtio", "serial": "s"}]}]`,
		"guest-get-timezone": `{"zone": "UTC", "offset": 0}`,
		"guest-get-osinfo":   `{"id": "debian", "pretty-name": "Debian 13"}`,
	})
	for name, words := range map[string][]string{
		"ping":        {""},
		"guest-info":  {`"guestAgentVersion":"8.2"`, `"guest-ping"`, `"UTC, 0"`, `"root"`, `"ext4"`, `"debian"`},
		"users":       {`"userName":"root"`, `"loginTime":1.5`},
		"filesystems": {`"mountPoint":"/"`, `"serial":"s"`},
	} {
		r, err := n.ExecSync(t.Context(), "a", []string{"nodevirt.io/" + name}, 0)
		if err != nil || r.GetExitCode() != 0 {
			t.Errorf("%s: %v, %v", name, r, err)
			continue
		}
		for _, w := range words {
			if !strings.Contains(string(r.GetStdout()), w) {
				t.Errorf("%s: %s has no %s", name, r.GetStdout(), w)
			}
		}
	}
	n.agents.Absent(n.add("b", record.Running))
	if r, err := n.ExecSync(t.Context(), "b", []string{"nodevirt.io/ping"}, 0); err != nil || r.GetExitCode() != 1 || len(r.GetStderr()) == 0 {
		t.Errorf("a probe of a guest without an agent: %v, %v", r, err)
	}
	n.domains.paused = domain.ReasonUser
	for _, command := range []string{"nodevirt.io/ping", "true"} { // what gets an error is not counted
		_, err := n.ExecSync(t.Context(), "a", []string{command}, 0)
		wantError(t, err, "the guest is paused")
		wantError(t, n.CheckExec("a", &runtimeapi.ExecRequest{Cmd: []string{"true"}}), "the guest is paused")
	}
	n.domains.paused = domain.ReasonIOError
	if r, err := n.ExecSync(t.Context(), "b", []string{"nodevirt.io/ping"}, 0); err != nil || r.GetExitCode() != 1 {
		t.Errorf("a probe of a guest that has stopped at an error: %v, %v", r, err)
	}
	n.domains.paused = domain.ReasonNone
	target := n.add("c", record.Running)
	waits := target.Record()
	waits.Incoming = "m"
	target.Publish(waits)
	_, err := n.ExecSync(t.Context(), "c", []string{"nodevirt.io/ping"}, 0)
	wantError(t, err, "in migration m")
	for _, name := range []string{"guest-info", "users", "filesystems"} {
		_, err := n.ExecSync(t.Context(), "b", []string{"nodevirt.io/" + name}, 0)
		wantError(t, err, agent.ErrAbsent.Error())
	}
}

// fileSystems is the agent of a guest whose file systems can be frozen.
func fileSystems(n *node, t *testing.T, v *table.VM) *freezable {
	t.Helper()
	f := &freezable{frozen: "thawed"}
	n.serveWith(t, v, func(command string) (string, bool) {
		f.mu.Lock()
		defer f.mu.Unlock()
		switch command {
		case "guest-fsfreeze-status":
			time.Sleep(f.slow)
			return `"` + f.frozen + `"`, true
		case "guest-fsfreeze-freeze":
			f.frozen = "frozen"
		case "guest-fsfreeze-thaw":
			if f.stuck {
				f.stuck = false
				return "", false
			}
			f.frozen = "thawed"
		case "guest-shutdown":
			return "{}", true
		default:
			return "", false
		}
		return "1", true
	})
	return f
}

type freezable struct {
	mu     sync.Mutex
	frozen string
	slow   time.Duration // how long it takes to answer whether it is frozen
	stuck  bool          // it refuses to thaw, once
}

func (f *freezable) set(state string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.frozen = state
}

// waitFor waits for a state of the file systems.
func (f *freezable) waitFor(t *testing.T, state string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		f.mu.Lock()
		now := f.frozen
		f.mu.Unlock()
		if now == state {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the guest is %s, want %s", now, state)
		}
	}
}

// press runs a control of the VM a, and returns its answer.
func (n *node) press(t *testing.T, command ...string) string {
	t.Helper()
	r, err := n.ExecSync(t.Context(), "a", command, 0)
	if err != nil || r.GetExitCode() != 0 {
		t.Fatalf("%v: %v, %v", command, r, err)
	}
	return string(r.GetStdout())
}

// TestFreeze: a freeze of a frozen guest succeeds, and one with a time ends by itself.
func TestFreeze(t *testing.T) {
	n := newNode(t)
	v := n.add("a", record.Running)
	guest := fileSystems(n, t, v)
	n.press(t, "nodevirt.io/freeze", "0s")
	if v.Record().Freeze != nil {
		t.Error("a freeze without an end has one on disk")
	}
	n.press(t, "nodevirt.io/freeze", "1h")
	if f := v.Record().Freeze; f == nil || f.Limit != time.Hour {
		t.Errorf("the end of the freeze is not on disk: %+v", f)
	}
	n.press(t, "nodevirt.io/freeze", "1ms")
	guest.waitFor(t, "thawed")
	n.press(t, "nodevirt.io/freeze", "1h")
	n.press(t, "nodevirt.io/unfreeze")
	guest.waitFor(t, "thawed")
	if v.Record().Freeze != nil {
		t.Error("a thawed guest has the end of a freeze on disk")
	}
	r := v.Record()
	r.Spec.NoACPI = true // its agent reboots it
	v.Publish(r)
	n.press(t, "nodevirt.io/reboot")
	if len(n.domains.done) > 0 {
		t.Errorf("libvirtd did %v", n.domains.done)
	}
}

// TestFreezer: KubeVirt's command for backups freezes a guest for a time, and leaves one as it is that has no agent or is
// paused.
func TestFreezer(t *testing.T) {
	n := newNode(t)
	v := n.add("a", record.Running)
	n.agents.Absent(v)
	if out := n.press(t, freezer, "--freeze", "--name", "a", "--namespace", "ns"); !strings.Contains(out, agent.ErrAbsent.Error()) {
		t.Errorf("a guest without an agent: %q", out)
	}
	guest := fileSystems(n, t, v)
	n.agents.Of(v).Port.Report(agent.Present)
	n.press(t, freezer, "--freeze", "--name", "a", "--namespace", "ns")
	guest.waitFor(t, "frozen")
	if f := v.Record().Freeze; f == nil || f.Limit != 5*time.Minute {
		t.Errorf("the end of the freeze: %+v", f)
	}
	n.press(t, freezer, "--unfreeze", "--name", "a", "--namespace", "ns")
	guest.waitFor(t, "thawed")
	n.press(t, freezer, "--freeze", "--unfreezeTimeoutSeconds=3600")
	if f := v.Record().Freeze; f == nil || f.Limit != time.Hour {
		t.Errorf("the end of the freeze: %+v", f)
	}
	n.press(t, freezer, "--unfreeze")
	n.domains.paused = domain.ReasonUser
	if out := n.press(t, freezer, "--freeze"); !strings.Contains(out, "paused") || v.Record().Freeze != nil {
		t.Errorf("a paused guest: %q, %+v", out, v.Record().Freeze)
	}
	for _, args := range [][]string{
		{}, {"--freeze", "--unfreeze"}, {"--freeze", "now"}, {"--thaw"},
		{"--freeze", "--unfreezeTimeoutSeconds=-1"}, {"--freeze", "--unfreezeTimeoutSeconds=9223372037"},
	} {
		_, err := n.ExecSync(t.Context(), "a", append([]string{freezer}, args...), 0)
		wantError(t, err, freezer)
	}
}

// TestSlowFreeze: a guest that freezes only after the end of its freeze has come is thawed.
func TestSlowFreeze(t *testing.T) {
	n := newNode(t)
	v := n.add("a", record.Running)
	guest := fileSystems(n, t, v)
	guest.slow = 50 * time.Millisecond
	n.press(t, "nodevirt.io/freeze", "1ms")
	guest.waitFor(t, "thawed")
	for deadline := time.Now().Add(time.Minute); v.Record().Freeze != nil; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the end of the freeze is still on disk")
		}
	}
}

// TestStuckFreeze: a guest that could not be thawed is thawed soon, and not only when its freeze ends.
func TestStuckFreeze(t *testing.T) {
	n := newNode(t)
	v := n.add("a", record.Running)
	guest := fileSystems(n, t, v)
	n.press(t, "nodevirt.io/freeze", "1h")
	guest.mu.Lock()
	guest.stuck = true
	guest.mu.Unlock()
	if _, err := n.ExecSync(t.Context(), "a", []string{"nodevirt.io/unfreeze"}, 0); err == nil {
		t.Error("the guest refused to thaw, and unfreeze succeeded")
	}
	guest.waitFor(t, "thawed")
	for deadline := time.Now().Add(time.Minute); v.Record().Freeze != nil; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the end of the freeze is still on disk")
		}
	}
}

// TestKeepFrozen: a freeze is extended only if it has lasted, and one that has ended does not
// begin again.
func TestKeepFrozen(t *testing.T) {
	n := newNode(t)
	v := n.add("a", record.Running)
	guest := fileSystems(n, t, v)
	keep := func(want string) {
		t.Helper()
		if got := n.press(t, "nodevirt.io/keep-frozen", "1h"); got != want {
			t.Errorf("keep-frozen answers %q, want %q", got, want)
		}
	}
	keep("thawed")
	guest.waitFor(t, "thawed")
	n.press(t, "nodevirt.io/freeze", "30m")
	keep("frozen")
	if f := v.Record().Freeze; f == nil || f.Limit != time.Hour {
		t.Errorf("the longer freeze is not on disk: %+v", f)
	}
	guest.set("thawed") // by the guest itself
	keep("thawed")
	n.press(t, "nodevirt.io/freeze", "1ms")
	guest.waitFor(t, "thawed")
	keep("thawed")
}

// TestFreezeEndsAfterRestart: a shim that starts thaws a guest that another one has frozen,
// also if the clock was set back meanwhile.
func TestFreezeEndsAfterRestart(t *testing.T) {
	for name, until := range map[string]time.Duration{"past": -time.Hour, "clock set back": time.Hour} {
		n := newNode(t)
		v := n.add("a", record.Running)
		guest := fileSystems(n, t, v)
		guest.set("frozen")
		r := v.Record()
		r.Freeze = &record.Freeze{Until: time.Now().Add(until), Limit: time.Millisecond}
		v.Publish(r)
		n.Recover()
		guest.waitFor(t, "thawed")
		for deadline := time.Now().Add(time.Minute); v.Record().Freeze != nil; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: the end of the freeze is still on disk", name)
			}
		}
	}
}

// TestConsole: the newest client ends the one before, and none that attaches.
func TestConsole(t *testing.T) {
	n := newNode(t)
	n.consoles.held = true
	v := n.add("a", record.Running)
	command := []string{"nodevirt.io/console"}
	if err := n.CheckExec("a", &runtimeapi.ExecRequest{Cmd: command}); err != nil {
		t.Error(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	attached, first, second := make(chan error, 1), make(chan error, 1), make(chan error, 1)
	go func() { attached <- n.Attach(ctx, v.Record().ID, stream.Streams{In: strings.NewReader("")}) }()
	go func() { first <- n.Exec(ctx, "a", command, stream.Streams{In: strings.NewReader(""), TTY: true}) }()
	n.consoles.waitFor(2)
	go func() { second <- n.Exec(ctx, "a", command, stream.Streams{In: strings.NewReader(""), TTY: true}) }()
	if err := <-first; err == nil || err.Error() != "exit code 75" {
		t.Errorf("the first console ended with %v", err)
	}
	n.consoles.waitFor(3)
	if last := n.consoles.last; !last.Live || last.Greeting != "connected\n" {
		t.Errorf("the second console's client is greeted with %q, live: %t", last.Greeting, last.Live)
	}
	select {
	case err := <-attached:
		t.Errorf("the one who attached ended with %v", err)
	case err := <-second:
		t.Errorf("the second console ended with %v", err)
	default:
	}
	leave()
	if a, s := <-attached, <-second; a != nil || s != nil {
		t.Errorf("after the end: %v, %v", a, s)
	}
	_, err := n.ExecSync(t.Context(), "a", command, 0)
	wantError(t, err, "the console needs a stream")
}

func TestAttachWithoutConsole(t *testing.T) {
	n := newNode(t)
	v := n.add("a", record.Running)
	r := v.Record()
	r.Spec.NoSerial = true
	v.Publish(r)
	wantError(t, n.Attach(t.Context(), r.ID, stream.Streams{}), `VM container "vm" has no serial console`)
}

func TestAttach(t *testing.T) {
	n := newNode(t)
	v := n.add("a", record.Running)
	var out bytes.Buffer
	if err := n.Attach(t.Context(), v.Record().ID, stream.Streams{In: strings.NewReader("hello"), Out: &out}); err != nil || out.String() != "hello" {
		t.Errorf("%q, %v", out.String(), err)
	}
	if id := v.Record().ID; n.consoles.last.Raw != n.layout.ConsoleFile(id) || n.consoles.last.Socket != n.layout.ConsoleSocket(id) {
		t.Errorf("console %+v", n.consoles.last)
	}
	wantError(t, n.Attach(t.Context(), "a", stream.Streams{}), "nothing is typed")
	n.add("b", record.Exited)
	wantError(t, n.Attach(t.Context(), "b", stream.Streams{}), "container is in CONTAINER_EXITED state")
}

func TestForward(t *testing.T) {
	n := newNode(t)
	v := n.add("a", record.Running)
	client, other := net.Pipe()
	defer other.Close()
	wantError(t, n.Forward(t.Context(), "pod-x", 80, client), "the pod's VM does not run any more")
	n.script.Fail("Sandboxes.NetworkNamespace", errors.New("sandbox is not running"))
	wantError(t, n.Forward(t.Context(), "pod-a", 80, client), "sandbox is not running")
	n.script.Fail("Sandboxes.NetworkNamespace", nil)
	r := v.Record()
	r.Network, r.Spec.Display = &netsetup.Plan{}, true
	v.Publish(r)
	wantError(t, n.Forward(t.Context(), "pod-a", 80, client), `VM container "vm": `) // there is no such namespace
	wantError(t, n.Forward(t.Context(), "pod-a", 5900, client), `VM container "vm": connect to the display`)

	n.serveDisplay(t, r.ID, greet)
	done := make(chan error, 1)
	go func() { done <- n.Forward(t.Context(), "pod-a", 5900, client) }()
	got := make([]byte, 12)
	if _, err := io.ReadFull(other, got); err != nil || string(got) != "RFB 003.008\n" {
		t.Errorf("the display said %q, %v", got, err)
	}
	other.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// greet begins as a VNC server does, and ends.
func greet(c net.Conn) {
	_, _ = io.WriteString(c, "RFB 003.008\n")
	_ = c.Close()
}

// serveDisplay accepts the clients of a VM's display.
func (n *node) serveDisplay(t *testing.T, id string, serve func(net.Conn)) {
	t.Helper()
	if err := os.MkdirAll(n.layout.DisplayDir(id), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", n.layout.DisplaySocket(id))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
}

// TestStreamsEndWithTheVM: a guest that has left for another node closes no connection, and neither
// does a display that hangs.
func TestStreamsEndWithTheVM(t *testing.T) {
	n := newNode(t)
	v := n.add("a", record.Running)
	r := v.Record()
	r.Spec.Display = true
	v.Publish(r)
	if err := os.MkdirAll(n.layout.DisplayDir(r.ID), 0o700); err != nil {
		t.Fatal(err)
	}
	silent, err := net.Listen("unix", n.layout.DisplaySocket(r.ID)) // it keeps its clients
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	client, other := net.Pipe()
	defer other.Close()
	in, typed := io.Pipe()
	defer func() { _ = typed.Close() }()
	done := make(chan error, 2)
	go func() { done <- n.Forward(t.Context(), "pod-a", 5900, client) }()
	go func() {
		done <- n.Exec(t.Context(), "a", []string{"nodevirt.io/connect", "5900"}, stream.Streams{In: in, Out: io.Discard})
	}()
	for range 2 {
		conn, err := silent.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	select {
	case err := <-done:
		t.Fatalf("a stream ended before its VM: %v", err)
	default:
	}
	r.State = record.Exited
	v.Publish(r)
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestStreamsOfOtherContainers: they outlive the VM.
func TestStreamsOfOtherContainers(t *testing.T) {
	n := newNode(t)
	v := n.add("a", record.Running)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := during(t.Context(), v, conn.(*net.TCPConn))
	defer cancel()
	r := v.Record()
	r.State = record.Exited
	v.Publish(r)
	select {
	case <-ctx.Done():
		t.Error(ctx.Err())
	case <-time.After(50 * time.Millisecond):
	}
}

// TestConnect: a client hears that it is connected, and gets what the port says until the port closes.
func TestConnect(t *testing.T) {
	n := newNode(t)
	v := n.add("a", record.Running)
	r := v.Record()
	r.Network, r.Spec.Display = &netsetup.Plan{}, true
	v.Publish(r)
	connect := func(port string) (string, error) {
		var out bytes.Buffer
		in, other := io.Pipe()
		defer func() { _ = other.Close() }()
		err := n.Exec(t.Context(), "a", []string{"nodevirt.io/connect", port}, stream.Streams{In: in, Out: &out})
		return out.String(), err
	}
	for port, want := range map[string]string{
		"0": "no port from 1 to 65535", "x": "no port", "65536": "no port", "80": `VM container "vm": `, "5900": "connect to the display",
	} {
		out, err := connect(port)
		wantError(t, err, want)
		if out != "" {
			t.Errorf("%s: it wrote %q", port, out)
		}
	}
	n.serveDisplay(t, r.ID, greet)
	if out, err := connect("5900"); err != nil || out != "connected\nRFB 003.008\n" {
		t.Errorf("%q, %v", out, err)
	}
	wantError(t, n.Exec(t.Context(), "a", []string{"nodevirt.io/connect", "5900"}, stream.Streams{}), "needs streams")
	_, err := n.ExecSync(t.Context(), "a", []string{"nodevirt.io/connect", "5900"}, 0)
	wantError(t, err, "needs streams")
}

// TestUSB: each client has its own slot until it leaves, and there are four.
func TestUSB(t *testing.T) {
	n := newNode(t)
	v := n.add("a", record.Running)
	r := v.Record()
	usb := func(ctx context.Context, s stream.Streams) error {
		return n.Exec(ctx, "a", []string{"nodevirt.io/usb"}, s)
	}
	open := func() stream.Streams { return stream.Streams{In: strings.NewReader(""), Out: io.Discard} }
	wantError(t, usb(t.Context(), open()), "set devices.clientPassthrough")
	r.Spec.USBRedirection = true
	v.Publish(r)
	wantError(t, usb(t.Context(), stream.Streams{}), "needs streams")
	wantError(t, usb(t.Context(), open()), "connect to slot 0")
	for slot, path := range n.layout.USBSockets(r.ID) {
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = fmt.Fprintf(c, "slot %d", slot)
				go func() { _, _ = io.Copy(io.Discard, c); _ = c.Close() }()
			}
		}()
	}
	type client struct {
		leave func() error
		heard string
	}
	join := func() client {
		in, leave := io.Pipe()
		heard, out := io.Pipe()
		done := make(chan error, 1)
		go func() { done <- usb(t.Context(), stream.Streams{In: in, Out: out}) }()
		got := make([]byte, len("connected\nslot 0"))
		if _, err := io.ReadFull(heard, got); err != nil {
			t.Fatal(err)
		}
		return client{heard: string(got), leave: func() error { return errors.Join(leave.Close(), heard.Close(), <-done) }}
	}
	var clients []client
	for slot := range 4 {
		c := join()
		clients = append(clients, c)
		if want := fmt.Sprintf("connected\nslot %d", slot); c.heard != want {
			t.Errorf("%q, want %q", c.heard, want)
		}
	}
	wantError(t, usb(t.Context(), open()), "each of the VM's 4 slots for USB devices is in use")
	if err := clients[2].leave(); err != nil {
		t.Error(err)
	}
	clients[2] = join()
	if clients[2].heard != "connected\nslot 2" {
		t.Errorf("after slot 2 is free: %q", clients[2].heard)
	}
	for _, c := range clients {
		if err := c.leave(); err != nil {
			t.Error(err)
		}
	}
}

// TestPreservedDisplay: a client that must not disturb another sees the display only while no other client does.
func TestPreservedDisplay(t *testing.T) {
	n := newNode(t)
	v := n.add("a", record.Running)
	r := v.Record()
	call := func(s stream.Streams, command ...string) error { return n.Exec(t.Context(), "a", command, s) }
	open := func() stream.Streams { return stream.Streams{In: strings.NewReader(""), Out: io.Discard} }
	const alone = "nodevirt.io/display"
	wantError(t, call(open(), alone), "the VM has no display")
	r.Spec.Display, r.Domain.UID = true, uint32(os.Getuid())
	v.Publish(r)
	wantError(t, call(stream.Streams{}, alone), "needs streams")
	wantError(t, call(open(), alone), "connect to the display")
	n.serveDisplay(t, r.ID, func(c net.Conn) { _, _ = io.Copy(io.Discard, c); _ = c.Close() })
	join := func(command ...string) (leave func()) {
		in, away := io.Pipe()
		heard, out := io.Pipe()
		done := make(chan error, 1)
		go func() { done <- call(stream.Streams{In: in, Out: out}, command...) }()
		_, err := io.ReadFull(heard, make([]byte, len("connected\n")))
		assert.NilError(t, err)
		return func() { assert.NilError(t, errors.Join(away.Close(), heard.Close(), <-done)) }
	}
	for _, first := range [][]string{{alone}, {"nodevirt.io/connect", "5900"}} {
		leave := join(first...)
		var ended *stream.ExitError
		if err := call(open(), alone); !errors.As(err, &ended) || ended.Code != 75 {
			t.Errorf("beside %s: %v", first, err)
		}
		join("nodevirt.io/connect", "5900")()
		leave()
	}
}

// TestVSOCK joins a client and the guest's end of a real pair of sockets.
func TestVSOCK(t *testing.T) {
	n := newNode(t)
	v := n.add("a", record.Running)
	r := v.Record()
	call := func(port string, s stream.Streams) error {
		return n.Exec(t.Context(), "a", []string{"nodevirt.io/vsock", port}, s)
	}
	open := func() stream.Streams { return stream.Streams{In: strings.NewReader(""), Out: io.Discard} }
	wantError(t, call("22", open()), "set devices.autoattachVSOCK")
	r.Spec.VSOCK, r.Domain.UID = true, 64001
	v.Publish(r)
	wantError(t, call("22", stream.Streams{}), "needs streams")
	for _, bad := range []string{"", "-1", "ssh", "4294967295", "4294967296"} {
		wantError(t, call(bad, open()), "is no port from 0 to 4294967294")
	}
	var dialled [2]uint32
	guest := make(chan *net.UnixConn, 1)
	n.vsocks = func(cid, port uint32) (stream.Conn, error) {
		dialled = [2]uint32{cid, port}
		if port == 1 {
			return nil, unix.ECONNRESET
		}
		ours, theirs := socketPair(t)
		guest <- theirs
		return ours, nil
	}
	wantError(t, call("1", open()), "connect to port 1 of the VM's VSOCK: connection reset by peer")
	in, toGuest := io.Pipe()
	fromGuest, out := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- call("4294967294", stream.Streams{In: in, Out: out}) }()
	var inside *net.UnixConn
	select {
	case inside = <-guest:
	case err := <-done:
		t.Fatal(err)
	}
	go func() {
		line, _ := bufio.NewReader(inside).ReadString('\n')
		_, _ = io.WriteString(inside, strings.ToUpper(line))
		_ = inside.Close()
	}()
	got := make([]byte, len("connected\nHELLO\n"))
	go func() { _, _ = io.WriteString(toGuest, "hello\n") }()
	if _, err := io.ReadFull(fromGuest, got); err != nil || string(got) != "connected\nHELLO\n" {
		t.Errorf("%q, %v", got, err)
	}
	if err := errors.Join(toGuest.Close(), <-done); err != nil {
		t.Error(err)
	}
	if dialled != [2]uint32{64001, 4294967294} {
		t.Errorf("dialled CID and port %v", dialled)
	}
}

// socketPair returns two connected sockets.
func socketPair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var conns [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		conns[i] = c.(*net.UnixConn)
	}
	return conns[0], conns[1]
}

func TestAgentEvents(t *testing.T) {
	n := newNode(t)
	v := n.add("a", record.Running)
	other := n.add("b", record.Exited)
	uuid := v.Record().Domain.UUID
	presence := func() agent.Presence { return n.agents.State(v).Presence }
	n.agents.Handle(v, domain.Event{UUID: uuid, Kind: domain.EventAgentConnected})
	n.agents.Handle(other, domain.Event{UUID: uuid, Kind: domain.EventAgentConnected})
	if presence() != agent.Present || n.agents.State(other).Presence != agent.Unknown {
		t.Errorf("connected: %s, %s", presence(), n.agents.State(other).Presence)
	}
	n.agents.Handle(v, domain.Event{UUID: uuid, Kind: domain.EventAgentDisconnected})
	if presence() != agent.Absent {
		t.Errorf("disconnected: %s", presence())
	}
	// A new connection to libvirtd asks; while libvirtd knows no answer, it is unknown.
	n.agents.Handle(v, domain.Event{Kind: domain.EventResync})
	wait.Until(t, "libvirtd is asked", func() bool { return n.script.Count("Libvirt.AgentConnected") == 1 })
	if presence() != agent.Unknown {
		t.Errorf("in doubt: %s", presence())
	}
	if err := n.libvirt.Lifecycle.Define(t.Context(), "<domain><name>a</name><uuid>"+uuid+"</uuid></domain>"); err != nil {
		t.Fatal(err)
	}
	n.agents.Handle(v, domain.Event{Kind: domain.EventResync})
	wait.Until(t, "it is absent", func() bool { return presence() == agent.Absent })
	n.libvirt.SetGuest(uuid, vmtest.Guest{Agent: true})
	n.agents.Handle(v, domain.Event{Kind: domain.EventResync})
	wait.Until(t, "it is present", func() bool { return presence() == agent.Present })
	n.mu.Lock()
	if n.changed < 4 {
		t.Errorf("%d changes were reported", n.changed)
	}
	n.mu.Unlock()
	if n.agents.Recent(v) == nil || n.agents.Recent(other) != nil {
		t.Error("a guest that does not run is known, or one that runs is not")
	}
}

func TestRemoveSockets(t *testing.T) {
	n := newNode(t)
	r := n.add("a", record.Exited).Record()
	all := append(n.layout.TerminalSockets(r.ID), n.layout.AgentSocket(r.ID), n.layout.USBSockets(r.ID)[3])
	for _, path := range all[1:] {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := n.agents.RemoveSockets(r.ID); err != nil {
			t.Error(err)
		}
	}
	for _, path := range all {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if terminals := commandTerminals(n.layout, r.ID); len(terminals) != 4 || terminals[0].Device != "/dev/hvc1" {
		t.Errorf("terminals %+v", terminals)
	}
}
