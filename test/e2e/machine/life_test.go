//go:build machine

package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestMachine takes a machine through a node's life. Each step needs those before it.
func TestMachine(t *testing.T) {
	for _, step := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"boot", boot},
		{"join the cluster", join},
		{"install the packages", installPackages},
		{"install beside another containerd", otherContainerd},
		{"install the node", installNode},
		{"run a VM", runVM},
		{"cgroups", cgroups},
		{"restart daemons", restartDaemons},
		{"upgrade", upgrade},
		{"run out of memory", outOfMemory},
		{"restart the kubelet", restartKubelet},
		{"restart libvirt-guests", restartGuests},
		{"rewrite the kubelet's arguments", rewriteArguments},
		{"reboot", reboot},
		{"reboot with a grace period", rebootWithGrace},
		{"keep objects", keepObjects},
		{"uninstall", uninstall},
		{"purge", purge},
	} {
		if !t.Run(step.name, step.do) {
			t.FailNow()
		}
	}
}

func boot(t *testing.T) {
	suite.machine.boot(t)
	booted(t)
}

// booted waits until all of the machine's services have started.
func booted(t *testing.T) {
	t.Helper()
	until(t, "the end of the machine's boot", func(ctx context.Context) error {
		state, err := run(ctx, "systemctl is-system-running || true")
		switch state = strings.TrimSpace(state); {
		case err != nil:
			return err
		case state == "degraded":
			failed, err := run(ctx, "systemctl --failed --no-legend --plain")
			t.Fatalf("units have failed: %s, %v", failed, err)
		case state != "running":
			return fmt.Errorf("the machine is %s", state)
		}
		return nil
	})
}

// join makes the machine a node of the cluster, as kubeadm would.
func join(t *testing.T) {
	must(t, `cp -rT /opt/payload/root /
ln -s /opt/payload/bin/* /usr/local/bin/
ln -s kube /usr/local/bin/kubelet
systemctl daemon-reload
systemctl is-enabled systemd-sysctl | grep -q masked || systemctl restart systemd-modules-load systemd-sysctl
systemctl enable --now containerd
for image in /opt/payload/images/*.tar; do ctr -n k8s.io images import "$image"; done
systemctl enable --now kubelet`)
	nodeReady(t)
	logged(t, "uname -r; stat -fc %T /sys/fs/cgroup; containerd --version")
	must(t, snapshot+"snapshot >/root/before")
}

func nodeReady(t *testing.T) {
	t.Helper()
	until(t, "the node to be Ready", func(ctx context.Context) error {
		state, err := suite.Kubectl(ctx, "get", "node", name, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
		if err == nil && state != "True" {
			err = fmt.Errorf("Ready is %q", state)
		}
		return err
	})
}

// snapshot is a function of the shell that prints what an installation may change.
const snapshot = `snapshot() {
	find /etc /usr/bin /usr/libexec /usr/lib/systemd /usr/share /var/lib/nodevirt* /var/lib/kubelet/config.yaml -xdev \
		! -path /etc/resolv.conf ! -path '/etc/libvirt/qemu*' ! -path /etc/systemd/system/multi-user.target.wants \
		! -path /usr/share/man/index.db -printf '%M %U:%G %p %l\n' -type f -exec sha256sum {} + 2>/dev/null | sort
	SYSTEMD_BUS_TIMEOUT=10min systemctl list-unit-files --no-legend >/run/units
	grep -v ' transient ' /run/units | sort
	systemctl is-active libvirtd.socket libvirtd-ro.socket libvirtd-admin.socket kubelet containerd
	stat -c '%a %n' /run/libvirt/libvirt-sock-ro
	ls /run | grep nodevirt || true
	nft list tables | grep -v ip || true
}
`

func installPackages(t *testing.T) {
	must(t, "dpkg --install /opt/payload/packages/*.deb")
	if out := must(t, "systemctl is-enabled nodevirt-shim nodevirt-tgtd || true; systemctl is-active nodevirt-shim nodevirt-tgtd || true"); out !=
		"disabled\ndisabled\ninactive\ninactive" {
		t.Errorf("the packages' units are %q", out)
	}
	must(t, "systemd-analyze --man=no verify nodevirt-shim.service nodevirt-tgtd.service libvirtd.service")
	logged(t, "nodevirt doctor || true")
}

func installNode(t *testing.T) {
	logged(t, "nodevirt node install --dry-run")
	logged(t, "nodevirt node install --timeout 20m")
	logged(t, "nodevirt doctor --config /etc/nodevirt/nodevirt-shim.toml")
	// The machine has no KVM, and Debian's own tgtd has the port.
	wantFindings(t, "accelerator", "tgtd")
	must(t, "systemctl disable --now tgt")
	wantFindings(t, "accelerator")
	if out := must(t, "systemctl is-enabled nodevirt-shim; systemctl is-active nodevirt-shim libvirtd kubelet"); out !=
		"enabled\nactive\nactive\nactive" {
		t.Errorf("the units are %q", out)
	}
	if out := must(t, "nodevirt node install"); !strings.Contains(out, "nodevirt is installed on this node.") {
		t.Errorf("a second installation: %s", out)
	}
}

// wantFindings fails the test unless nodevirt doctor is content but for the given checks.
func wantFindings(t *testing.T, names ...string) {
	t.Helper()
	var found []struct{ Check, Level, Detail string }
	if err := json.Unmarshal([]byte(must(t, "nodevirt doctor -o json || true")), &found); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range found {
		if f.Level != "ok" {
			got = append(got, f.Check)
			t.Logf("%s: %s: %s", f.Check, f.Level, f.Detail)
		}
	}
	if !slices.Equal(got, names) {
		t.Errorf("nodevirt doctor is not content with %q; want %q", got, names)
	}
}

// qemu prints the process ID of the small guest's QEMU. The pattern does not match the script itself.
const qemu = "pgrep -f 'guest=[d]efault_small_'"

// group sets the variables pod, to the cgroup of the small guest's QEMU, and dir, to the folder with its
// limit of memory, on cgroup v1 or v2.
const group = `pod=$(sed -n 's/^[0-9]*:memory://p; s/^0:://p' /proc/$(` + qemu + `)/cgroup | head -n 1)
dir=/sys/fs/cgroup$pod limit=memory.max usage=memory.current
[ -e /sys/fs/cgroup/cgroup.controllers ] || dir=/sys/fs/cgroup/memory$pod limit=memory.limit_in_bytes usage=memory.usage_in_bytes
`

func runVM(t *testing.T) {
	apply(t, guestPod("small"))
	guestsUp(t, "small")
	logged(t, "crictl stats; nodevirt ps; tr '\\0' ' ' </proc/$("+qemu+")/cmdline")
}

// cgroups looks for the VM below its pod's slice, with its limits, after systemd has written to cgroups
// again.
func cgroups(t *testing.T) {
	if pod := must(t, group+"echo $pod"); !strings.HasPrefix(pod, "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod") || !strings.HasSuffix(pod, ".scope") {
		t.Errorf("QEMU is in %s", pod)
	}
	limits := group + "cat $dir/$limit; [ $limit != memory.max ] || cat $dir/cpu.max $dir/cgroup.controllers"
	before := must(t, limits)
	t.Log(before)
	if strings.HasPrefix(before, "max") || strings.HasPrefix(before, "9223372036854771712") {
		t.Errorf("no limit of memory: %s", before)
	}
	must(t, "systemctl daemon-reload; systemctl daemon-reexec; sleep 5")
	if after := must(t, limits); after != before {
		t.Errorf("after systemd read its units again, limits are %q; before %q", after, before)
	}
	var stats struct {
		Stats []struct {
			CPU    struct{ UsageCoreNanoSeconds struct{ Value string } }
			Memory struct{ WorkingSetBytes struct{ Value string } }
		}
	}
	text := must(t, "crictl stats -o json $("+container("small")+")")
	if err := json.Unmarshal([]byte(text), &stats); err != nil || len(stats.Stats) != 1 {
		t.Fatalf("%v: %s", err, text)
	}
	for _, value := range []string{stats.Stats[0].CPU.UsageCoreNanoSeconds.Value, stats.Stats[0].Memory.WorkingSetBytes.Value} {
		if n, err := strconv.ParseInt(value, 10, 64); err != nil || n < 1_000_000 {
			t.Errorf("stats have %q: %s", value, text)
		}
	}
}

// sameGuest fails the test unless QEMU's process is the one of before, and the console has each line of
// what the guest counts.
func sameGuest(t *testing.T, before string) {
	t.Helper()
	if now := must(t, qemu); now != before {
		t.Errorf("QEMU's process is %s; it was %s", now, before)
	}
	log := must(t, consoleOf("small")+" | grep -ao 'count [0-9]*'")
	last := 0
	for line := range strings.Lines(log) {
		n, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "count ")))
		if err != nil || n != last+1 {
			t.Fatalf("the console has %q after count %d", line, last)
		}
		last = n
	}
	// It goes on.
	untilOutput(t, consoleOf("small"), fmt.Sprintf("count %d", last+2))
}

// restartDaemons restarts what the guest must not notice.
func restartDaemons(t *testing.T) {
	before := must(t, qemu)
	for _, unit := range []string{"nodevirt-shim", "libvirtd", "containerd"} {
		must(t, "systemctl restart "+unit+"; sleep 3; systemctl is-active "+unit)
		sameGuest(t, before)
	}
	nodeReady(t)
}

// upgrade installs packages of a later version while the guest runs.
func upgrade(t *testing.T) {
	before, shim := must(t, qemu), must(t, "systemctl show -P MainPID nodevirt-shim")
	must(t, "dpkg --install /opt/payload/later/*.deb")
	if version := must(t, "dpkg-query -W -f '${Version}' nodevirt-node"); !strings.HasPrefix(version, "99.0.0") {
		t.Errorf("after the upgrade the version is %s", version)
	}
	until(t, "another shim", func(ctx context.Context) error {
		now, err := run(ctx, "systemctl is-active nodevirt-shim && systemctl show -P MainPID nodevirt-shim")
		if err == nil && strings.Contains(now, shim) {
			err = errors.New("the shim of before runs")
		}
		return err
	})
	logged(t, "nodevirt node install")
	sameGuest(t, before)
	nodeReady(t)
}

// outOfMemory lowers the limit of the VM's group, and has the guest take memory: the kernel kills QEMU, and
// the kubelet starts the guest again.
func outOfMemory(t *testing.T) {
	ip, err := suite.Kubectl(t.Context(), "get", "pod", "small", "-o", "jsonpath={.status.podIP}")
	if err != nil {
		t.Fatal(err)
	}
	must(t, group+"echo $(($(cat $dir/$usage) + 1048576)) >$dir/$limit")
	// No answer comes from a guest that is gone.
	must(t, "bash -c 'exec 3<>/dev/tcp/"+ip+"/80; printf \"GET /cgi-bin/memory?100 HTTP/1.0\\r\\n\\r\\n\" >&3; timeout 30 cat <&3' || true")
	until(t, "the container's end", func(ctx context.Context) error {
		reason, err := suite.Kubectl(ctx, "get", "pod", "small", "-o", "jsonpath={.status.containerStatuses[0].lastState.terminated.reason}")
		if err == nil && reason != "OOMKilled" {
			err = fmt.Errorf("the reason is %q", reason)
		}
		return err
	})
	guestsUp(t, "small")
}

// restartKubelet restarts the kubelet while libvirtd is away: neither ends the guest.
func restartKubelet(t *testing.T) {
	before := must(t, qemu)
	must(t, "systemctl stop libvirtd.socket libvirtd-ro.socket libvirtd-admin.socket libvirtd")
	schedulable(t, "")
	must(t, "systemctl restart kubelet; sleep 20; systemctl start libvirtd.socket libvirtd-ro.socket libvirtd")
	nodeReady(t)
	sameGuest(t, before)
}

func uninstall(t *testing.T) {
	if out, err := run(t.Context(), "nodevirt node uninstall"); err == nil || !strings.Contains(err.Error(), "VMs run on this node") {
		t.Errorf("uninstall with a running VM: %s, %v", out, err)
	}
	if out, err := run(t.Context(), "dpkg --remove nodevirt-node"); err == nil || !strings.Contains(err.Error(), "nodevirt node uninstall") {
		t.Errorf("remove the package of an installed node: %s, %v", out, err)
	}
	// As on a node that was set up by hand.
	const journal = "/var/lib/nodevirt-node/install.json"
	must(t, "mv "+journal+" /root/")
	if out, err := run(t.Context(), "dpkg --purge nodevirt-node"); err == nil || !strings.Contains(err.Error(), "VMs run on this node: default_small_") {
		t.Errorf("purge the package under a running VM: %s, %v", out, err)
	}
	must(t, "mv /root/install.json "+journal+"; systemctl is-active nodevirt-shim")
	remove(t, guestPod("small"))
	logged(t, "nodevirt node uninstall --timeout 20m")
	nodeReady(t)
}

// purge removes the packages. Nothing is left of them.
func purge(t *testing.T) {
	must(t, "dpkg --purge nodevirt-node nodevirt; systemctl enable --now tgt")
	if out := must(t, snapshot+"snapshot >/root/after; diff /root/before /root/after || true"); out != "" {
		t.Errorf("what the purge left:\n%s", out)
	}
	if out := must(t, "pgrep -a 'qemu-system|dnsmasq|nodevirt' || true; virsh list --all --name; systemctl --failed --no-legend"); out != "" {
		t.Errorf("what runs, or has failed, after the purge:\n%s", out)
	}
}
