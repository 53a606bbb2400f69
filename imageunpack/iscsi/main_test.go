package iscsi_test

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nodevirt/nodevirt/imageunpack/iscsi"
	"github.com/nodevirt/nodevirt/test/needs"
	"github.com/nodevirt/nodevirt/test/wait"
)

// server is a tgtd of a test's own.
type server struct {
	*iscsi.Daemon
	socket string
	log    string
	cmd    *exec.Cmd
}

// start starts a tgtd that ends with the test.
func start(t *testing.T) *server {
	t.Helper()
	needs.Parts(t, "tgtd")
	dir, err := os.MkdirTemp("", "tgt")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &server{socket: filepath.Join(dir, "tgtd"), log: filepath.Join(dir, "log")}
	s.Daemon = iscsi.New(iscsi.Options{Socket: s.socket, Portal: portal(), Logger: slog.New(slog.DiscardHandler)})
	s.run(t)
	t.Cleanup(func() { s.kill(t) })
	return s
}

// portal is an address of loopback that no other test has.
func portal() netip.AddrPort {
	a := netip.AddrFrom4([4]byte{127, byte(1 + rand.IntN(250)), byte(rand.IntN(250)), byte(2 + rand.IntN(250))})
	return netip.AddrPortFrom(a, 3260)
}

func (s *server) run(t *testing.T) {
	t.Helper()
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	s.cmd = exec.Command("tgtd", "-f", "-t", "2", "--iscsi", "portal=127.0.0.1:0")
	s.cmd.Env = append(os.Environ(), "TGT_IPC_SOCKET="+s.socket)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := s.cmd.Start(); err != nil {
		t.Fatalf("start tgtd (Debian's package tgt): %v", err)
	}
	wait.Until(t, "tgtd answers", func() bool {
		_, err := s.List(t.Context())
		return err == nil
	})
}

func (s *server) kill(t *testing.T) {
	t.Helper()
	_ = s.cmd.Process.Signal(syscall.SIGKILL)
	_ = s.cmd.Wait()
}

// file makes a raw disk.
func file(t *testing.T, size int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk.raw")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
	return path
}

func key(t *testing.T) iscsi.Key {
	t.Helper()
	k, err := iscsi.OpenKey(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// qemuIO runs commands of qemu-io on a target, as QEMU's own initiator.
func qemuIO(t *testing.T, portal netip.AddrPort, a iscsi.Access, commands ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	image := `json:{"driver":"raw","file":{"driver":"iscsi","transport":"tcp","portal":"` + portal.String() +
		`","target":"` + a.Name + `","lun":1,"initiator-name":"` + a.Initiator + `"`
	args := []string{}
	if a.User != "" {
		args = append(args, "--object", "secret,id=p,data="+a.Password.Reveal())
		image += `,"user":"` + a.User + `","password-secret":"p"`
	}
	for _, c := range commands {
		args = append(args, "-c", c)
	}
	out, err := exec.CommandContext(ctx, "qemu-io", append(args, image+"}}")...).CombinedOutput()
	return string(out), err
}

func contains(t *testing.T, text, part string) {
	t.Helper()
	if !strings.Contains(text, part) {
		t.Errorf("%q is not in:\n%s", part, text)
	}
}
