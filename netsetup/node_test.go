package netsetup

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/test/needs"
)

// inside is set in the environment of a test process that has separate namespaces.
const inside = "NETSETUP_TEST_INSIDE"

// TestMain runs the tests in separate network, mount and process namespaces, which
// stand in for the node: whatever they make is gone with them, however they end.
func TestMain(m *testing.M) {
	if needs.Unit() {
		os.Exit(m.Run())
	}
	if os.Getenv(inside) != "" {
		if err := mountProc(); err != nil {
			fmt.Fprintln(os.Stderr, "mount /proc of the tests:", err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID,
		Pdeathsig:  syscall.SIGKILL,
	}
	runtime.LockOSThread() // Pdeathsig is about the thread
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		os.Exit(exit.ExitCode())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "run tests in new namespaces (this needs root):", err)
		os.Exit(1)
	}
}

func mountProc() error {
	return errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("proc", "/proc", "proc", 0, ""))
}

// hostNamespace is the test process' own.
const hostNamespace = "/proc/thread-self/ns/net"

// node is a test's CNI network in the test process' own namespace.
type node struct {
	conf   map[string]any
	setup  *Setup
	dir    string
	bridge string
	pods   int
}

// newNode configures CNI's bridge plug-in, hairpin mode on, IPv4 and IPv6.
func newNode(t *testing.T) *node {
	t.Helper()
	needs.Parts(t, "root, CNI plug-ins")
	n := &node{dir: t.TempDir(), bridge: "cni0"}
	n.conf = map[string]any{
		"cniVersion": "0.4.0", "name": "podnet", "type": "bridge", "bridge": n.bridge,
		"isGateway": true, "hairpinMode": true, "mtu": 1400,
		"ipam": map[string]any{
			"type": "host-local", "dataDir": t.TempDir(),
			"ranges": [][]map[string]string{
				{{"subnet": "10.88.1.0/24"}}, {{"subnet": "fd00:88::/64"}},
			},
			"routes": []map[string]string{
				{"dst": "0.0.0.0/0"}, {"dst": "::/0"}, {"dst": "192.0.2.0/24", "gw": "10.88.1.7"},
			},
		},
	}
	trustAddresses(t, hostNamespace)
	n.setup = New(Options{Dnsmasq: lookPath(t, "dnsmasq"), Dir: n.dir})
	t.Cleanup(func() { removeLink(t, n.bridge) })
	return n
}

func lookPath(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// addPod makes a network namespace and has CNI add it to the node's network.
func (n *node) addPod(t *testing.T) string {
	t.Helper()
	n.pods++
	id := fmt.Sprintf("pod%d", n.pods)
	ns := newNamespace(t)
	n.cni(t, "ADD", id, ns)
	t.Cleanup(func() { n.cni(t, "DEL", id, ns) })
	return ns
}

func (n *node) cni(t *testing.T, command, id, ns string) {
	t.Helper()
	runCNI(t, n.conf, command, id, ns, "eth0")
}

// runCNI runs a plug-in as containerd does.
func runCNI(t *testing.T, config map[string]any, command, id, ns, name string) {
	t.Helper()
	conf, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join("/usr/lib/cni", config["type"].(string)))
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+command, "CNI_CONTAINERID="+id,
		"CNI_NETNS="+ns, "CNI_IFNAME="+name, "CNI_PATH=/usr/lib/cni")
	cmd.Stdin = bytes.NewReader(conf)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("CNI %s: %v: %s", command, err, out)
	}
}

// newNamespace returns the path of a new network namespace with lo up, as containerd
// makes them: a bind mount.
func newNamespace(t *testing.T) string {
	t.Helper()
	needs.Parts(t, "root")
	path := filepath.Join(t.TempDir(), "net")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// Not on another thread: were that the process' first, /proc/self/ns would change.
	err := within(hostNamespace, func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		return unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, "")
	})
	if err != nil {
		t.Fatal("make network namespace:", err)
	}
	t.Cleanup(func() { closeNamespace(t, path) })
	trustAddresses(t, path)
	inPod(t, path, func(h *netlink.Handle) error {
		lo, err := h.LinkByName("lo")
		if err != nil {
			return err
		}
		return h.LinkSetUp(lo)
	})
	return path
}

// trustAddresses spares the seconds for which a new IPv6 address is looked for elsewhere, and
// those before a host asks for its routers.
func trustAddresses(t *testing.T, ns string) {
	t.Helper()
	inPod(t, ns, func(*netlink.Handle) error {
		return errors.Join(writeSysctl("ipv6/conf/default/accept_dad", "0"),
			writeSysctl("ipv6/conf/default/router_solicitation_delay", "0"),
			writeSysctl("ipv6/conf/default/router_solicitation_interval", "1"))
	})
}

// closeNamespace lets the namespace end, as a pod's removal does.
func closeNamespace(t *testing.T, path string) {
	t.Helper()
	err := unix.Unmount(path, unix.MNT_DETACH)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		t.Error("unmount network namespace:", err)
	}
}

// inPod runs fn in a namespace and fails the test if it fails.
func inPod(t *testing.T, ns string, fn func(*netlink.Handle) error) {
	t.Helper()
	if err := withinLink(ns, fn); err != nil {
		t.Fatal(err)
	}
}

func removeLink(t *testing.T, name string) {
	t.Helper()
	err := withHandle(func(h *netlink.Handle) error {
		link, err := findLink(h, name)
		if err != nil || link == nil {
			return err
		}
		return h.LinkDel(link)
	})
	if err != nil {
		t.Error(err)
	}
}

// run runs a program in a namespace and returns its output.
func run(t *testing.T, ns string, args ...string) string {
	t.Helper()
	var out []byte
	err := within(ns, func() (err error) {
		out, err = exec.Command(args[0], args[1:]...).CombinedOutput()
		return err
	})
	if err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}
