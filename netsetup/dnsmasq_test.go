package netsetup

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
)

func TestServerOutlivesItsStarter(t *testing.T) {
	n := newNode(t)
	m := n.start(t, idA, Pod{Netns: n.addPod(t)})
	pid, err := n.setup.Serve(t.Context(), m.plan)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := New(Options{Dir: n.dir}).Serve(t.Context(), m.plan); err != nil || again != pid {
		t.Errorf("second Serve: pid %d, %v, want %d", again, err, pid)
	}
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	if got := readFile(t, proc+"/environ"); got != "LC_ALL=C\x00" {
		t.Errorf("environment %q", got)
	}
	if cwd, err := os.Readlink(proc + "/cwd"); err != nil || cwd != "/" {
		t.Errorf("working directory %q, %v", cwd, err)
	}
	status := readFile(t, proc+"/status")
	for _, line := range []string{
		"\nUid:\t65534\t65534\t65534\t65534\n",
		"\nCapEff:\t0000000000003000\n", // CAP_NET_ADMIN, and for IPv6 CAP_NET_RAW
		// Without CAP_CHOWN, not even its start changes the owner of a file of the node, such as /dev/null.
		"\nCapBnd:\t00000000000034c0\n",
	} {
		if !strings.Contains(status, line) {
			t.Errorf("no %q in status:\n%s", line, status)
		}
	}
	fields := strings.Fields(readFile(t, proc+"/stat"))
	own := strings.Fields(readFile(t, "/proc/self/stat"))
	if fields[5] == own[5] {
		t.Error("dnsmasq is in the session of its starter")
	}
	for _, fd := range []string{"0", "1", "2"} {
		if target, err := os.Readlink(proc + "/fd/" + fd); err != nil || target != "/dev/null" {
			t.Errorf("descriptor %s is %q, %v", fd, target, err)
		}
	}
}

func TestServeReportsWhyNot(t *testing.T) {
	n := newNode(t)
	pod := n.addPod(t)
	plan := n.plan(t, idA, pod)
	if err := n.setup.Apply(t.Context(), plan); err != nil {
		t.Fatal(err)
	}
	var sidecar net.PacketConn
	inPod(t, pod, func(*netlink.Handle) (err error) {
		sidecar, err = net.ListenPacket("udp4", ":67")
		return err
	})
	_, err := n.setup.Serve(t.Context(), plan)
	if err == nil || !strings.Contains(err.Error(), "Address already in use") {
		t.Errorf("Serve with its port taken: %v", err)
	}
	n.noServer(t)
	sidecar.Close()

	absent := New(Options{Dnsmasq: "/nonexistent/dnsmasq", Dir: n.dir})
	_, err = absent.Serve(t.Context(), plan)
	if err == nil || !strings.Contains(err.Error(), "/nonexistent/dnsmasq") {
		t.Errorf("Serve without dnsmasq: %v", err)
	}
	n.noServer(t)
	if _, err := n.setup.Serve(t.Context(), plan); err != nil {
		t.Errorf("Serve after it had failed: %v", err)
	}
}

// A pid file may outlive a reboot of the node: its number can be another process's then.
func TestStopSparesOthers(t *testing.T) {
	n := newNode(t)
	plan := n.plan(t, idA, n.addPod(t))
	if err := n.setup.writeConfig(plan); err != nil {
		t.Fatal(err)
	}
	pidFile := filepath.Join(n.setup.folder(plan), pidName)
	for _, pid := range []string{strconv.Itoa(os.Getpid()), "1", "0", "-1", "", "x", "4194304"} {
		if err := os.WriteFile(pidFile, []byte(pid+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if found, err := n.setup.server(plan).Find(); err != nil || found != 0 {
			t.Errorf("pid file with %q: server %d, %v", pid, found, err)
		}
	}
	n.undo(t, plan)
	n.noServer(t)
}

// serves reports whether a process is a dnsmasq of this node.
func (n *node) serves(pid int) bool {
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && strings.Contains(string(cmdline), "--conf-file="+n.dir)
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// noServer checks that a VM has no files of dnsmasq. The plan of what is made in its pod stays.
func (n *node) noServer(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(n.dir, "*", "dnsmasq.*"))
	if err != nil || len(files) > 0 {
		t.Errorf("left: %v, %v", files, err)
	}
}
