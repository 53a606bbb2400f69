package outage_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nodevirt/nodevirt/imageunpack/iscsi"
	"github.com/nodevirt/nodevirt/imageunpack/iscsi/outage"
	"github.com/nodevirt/nodevirt/test/needs"
	"github.com/nodevirt/nodevirt/test/wait"
)

// uid is a machine's user.
const uid = 64001

// inside is set in the test process that has a separate network namespace.
const inside = "NODEVIRT_TEST_OUTAGE"

// alone runs a test in a process that has a separate network namespace, and reports whether this is it.
func alone(t *testing.T) bool {
	t.Helper()
	needs.Parts(t, "root, tgtd, QEMU")
	if os.Getenv(inside) != "" {
		run(t, "ip", "link", "set", "lo", "up")
		return true
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread() // with the thread the process would end
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(t.Context(), self, "-test.v", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
	return false
}

// TestCut cuts a portal off in each way from who uses it: he has errors then, and when it is back
// his disk.
func TestCut(t *testing.T) {
	if !alone(t) {
		return
	}
	portal := netip.MustParseAddrPort("127.0.0.1:3260")
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() {
		outage.Watch(ctx, outage.Options{
			Portals:  func() []netip.AddrPort { return []netip.AddrPort{portal} },
			FirstUID: uid, LastUID: uid, Patience: time.Second,
			Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
		})
	})
	defer watching.Wait()
	defer cancel()
	s := newServer(t, portal)
	for _, c := range []struct {
		name      string
		cut, mend func()
	}{
		{"it has ended", s.end, s.start},
		{"it hangs", func() { s.signal(syscall.SIGSTOP) }, func() { s.signal(syscall.SIGCONT) }},
		{"the network is cut", func() {
			run(t, "nft", "add table ip cut; add chain ip cut packets { type filter hook input priority 0; };"+
				"add rule ip cut packets tcp dport 3260 drop")
		}, func() { run(t, "nft", "delete table ip cut") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := s.use(t)
			q.says(t, "read 0 512", "read 512/512")
			c.cut()
			q.says(t, "read 1k 512", "read failed: Input/output error")
			q.says(t, "write 2k 512", "write failed: Input/output error")
			q.says(t, "read 3k 512", "read failed: Input/output error")
			c.mend()
			q.eventually(t, "write -P 5 2k 512", "wrote 512/512")
			q.says(t, "read -P 5 2k 512", "read 512/512")
		})
	}
	s.end()
	for end := time.Now().Add(2 * time.Minute); ; {
		q := s.use(t)
		said := q.says(t, "", "can't open device") // at first, as no server listens
		if strings.Contains(said, "iSCSI: Inquiry command failed") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("opening a disk that is away: %s", said)
		}
	}
	cancel()
	watching.Wait()
	if out, err := exec.Command("nft", "list", "tables").Output(); err != nil || len(out) > 0 {
		t.Errorf("left: %s, %v", out, err)
	}
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v: %s", name, args, err, out)
	}
}

// server is a tgtd with one disk.
type server struct {
	t      *testing.T
	daemon *iscsi.Daemon
	target iscsi.Target
	socket string
	cmd    *exec.Cmd
}

func newServer(t *testing.T, portal netip.AddrPort) *server {
	t.Helper()
	dir := t.TempDir()
	key, err := iscsi.OpenKey(filepath.Join(dir, "key"))
	if err != nil {
		t.Fatal(err)
	}
	disk := filepath.Join(dir, "disk")
	if err := os.WriteFile(disk, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, socket: filepath.Join(dir, "tgtd"), target: iscsi.Target{Access: key.Access("a"), Path: disk}}
	s.daemon = iscsi.New(iscsi.Options{Socket: s.socket, Portal: portal, Logger: slog.New(slog.DiscardHandler)})
	s.start()
	t.Cleanup(s.end)
	return s
}

func (s *server) start() {
	s.t.Helper()
	s.cmd = exec.Command("tgtd", "-f", "-t", "2", "--iscsi", "portal=127.0.0.1:0")
	s.cmd.Env = append(os.Environ(), "TGT_IPC_SOCKET="+s.socket)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatalf("start tgtd (Debian's package tgt): %v", err)
	}
	wait.Success(s.t, "tgtd to serve the target", func(ctx context.Context) error {
		return s.daemon.Serve(ctx, s.target)
	})
}

func (s *server) signal(sig syscall.Signal) { _ = s.cmd.Process.Signal(sig) }

func (s *server) end() {
	s.signal(syscall.SIGKILL)
	_ = s.cmd.Wait()
}

// user is a qemu-io that has the disk open.
type user struct {
	in  io.Writer
	out *text
}

func (s *server) use(t *testing.T) *user {
	t.Helper()
	a := s.target.Access
	cmd := exec.CommandContext(t.Context(), "qemu-io", "--object", "secret,id=p,data="+a.Password.Reveal(),
		`json:{"driver":"raw","file":{"driver":"iscsi","transport":"tcp","portal":"`+s.daemon.Portal().String()+
			`","target":"`+a.Name+`","lun":1,"initiator-name":"`+a.Initiator+`","user":"`+a.User+`","password-secret":"p"}}`)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	u := &user{out: &text{}}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	u.in, cmd.Stdout, cmd.Stderr = in, u.out, u.out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return u
}

func (u *user) said() string { return u.out.String() }

// asks has qemu-io do something, and returns what it says of it.
func (u *user) asks(t *testing.T, line string) string {
	t.Helper()
	before := 0 // without a line, the answer is to the start, and may be complete
	if line != "" {
		before = len(u.said())
	}
	fmt.Fprintln(u.in, line)
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if said := u.said()[before:]; strings.Contains(said, "512/512") || strings.Contains(said, "failed") {
			return said
		}
		if time.Now().After(end) {
			t.Fatalf("%s hangs: %s", line, u.said())
		}
	}
}

func (u *user) says(t *testing.T, line, want string) (said string) {
	t.Helper()
	if said = u.asks(t, line); !strings.Contains(said, want) {
		t.Fatalf("%s: %s; want %s", line, said, want)
	}
	return said
}

func (u *user) eventually(t *testing.T, line, want string) {
	t.Helper()
	wait.Success(t, line, func(context.Context) error {
		if said := u.asks(t, line); !strings.Contains(said, want) {
			return fmt.Errorf("%s; want %s", said, want)
		}
		return nil
	})
}

// text is what a process says.
type text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (t *text) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.Write(b)
}

func (t *text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}
