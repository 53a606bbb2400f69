//go:build machine

package machine

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// reboot restarts the machine with a guest on each kind of disk. All take their time to power off, and write to their
// disks meanwhile. The kubelet starts them again. The pods are new: systemd has not read its units again since their slices
// were made, which would hide that a slice ends at once.
func reboot(t *testing.T) {
	remove(t, guestPod("small"))
	pods := []*corev1.Pod{
		guestPod("small"),
		guestPod("served", annotated(vmspec.AnnotationDiskMode, string(vmspec.ModeISCSI))),
		guestPod("raw", specified(`"tpm": {}, `, `"containerDisk": {"image": "r"}`), annotated(vmspec.AnnotationDiskMode, string(vmspec.ModeRaw))),
	}
	// Their disks are not new after the reboot.
	var kept []string
	if !*asVM {
		openNetworkDisks(t)
		pods = append(pods, guestPod("volume", onVolume), guestPod("network", onNetwork(t)), guestPod("block", onDevice(t)))
		kept = []string{"volume", "network", "block"}
	}
	apply(t, pods...)
	old, logs := map[string]string{}, map[string]string{}
	for _, p := range pods {
		guestsUp(t, p.Name)
		old[p.Name], logs[p.Name] = must(t, container(p.Name)), logOf(t, p.Name)
		logged(t, "systemctl show nodevirt-"+old[p.Name]+".scope -p Before")
	}
	restart(t)
	for _, p := range pods {
		until(t, "another container of pod "+p.Name, func(ctx context.Context) error {
			now, err := run(ctx, container(p.Name))
			if now = strings.TrimSpace(now); err == nil && (now == "" || now == old[p.Name]) {
				err = fmt.Errorf("the container is %q", now)
			}
			return err
		})
		guestsUp(t, p.Name)
		closed(t, p.Name, logs[p.Name])
		if reason := ended(t, p.Name); reason != "NodeShutdown 143" {
			t.Errorf("the end of guest %s is %q", p.Name, reason)
		}
		if out := must(t, "virsh list --all --name | grep -c default_"+p.Name+"_"); out != "1" {
			t.Errorf("libvirt has %s domains of pod %s", out, p.Name)
		}
	}
	for _, pod := range kept {
		if lines := strings.Fields(page(t, pod, "/cgi-bin/disk")); len(lines) != closings() {
			t.Errorf("the disk of guest %s has %d of %d writes: %q", pod, len(lines), closings(), lines)
		}
	}
	logged(t, "virsh list --all; journalctl -b -u nodevirt-shim --no-pager | tail -n 20")
	remove(t, pods[1:]...)
}

// restart reboots the machine, and waits until the node is ready.
func restart(t *testing.T) {
	t.Helper()
	begun := time.Now()
	_, _ = run(t.Context(), "touch /run/booted-before; systemctl reboot") // its answer may be lost
	suite.machine.rebooted(t)
	t.Logf("the machine was down after %s", time.Since(begun).Round(time.Second))
	booted(t)
	nodeReady(t)
}

// rebootWithGrace restarts the machine whose kubelet delays a shutdown, to end its pods first.
func rebootWithGrace(t *testing.T) {
	must(t, "cp -p "+kubeletConfig+" /root/config.yaml; printf 'shutdownGracePeriod: 3m\\nshutdownGracePeriodCriticalPods: 10s\\n' >>"+kubeletConfig+
		"; systemctl restart kubelet")
	until(t, "the kubelet to delay shutdowns", func(ctx context.Context) error {
		list, err := run(ctx, "systemd-inhibit --list --no-legend")
		if err == nil && !strings.Contains(list, "kubelet") {
			err = fmt.Errorf("those who do are %q", list)
		}
		return err
	})
	nodeReady(t)
	remove(t, guestPod("small"))
	pods := []*corev1.Pod{guestPod("small"), guestPod("served", annotated(vmspec.AnnotationDiskMode, string(vmspec.ModeISCSI)))}
	apply(t, pods...)
	logs := map[string]string{}
	for _, p := range pods {
		guestsUp(t, p.Name)
		logs[p.Name] = logOf(t, p.Name)
	}
	restart(t)
	for _, p := range pods {
		closed(t, p.Name, logs[p.Name])
		until(t, "the end of pod "+p.Name, func(ctx context.Context) error {
			out, err := suite.Kubectl(ctx, "get", "pod", p.Name, "-o",
				"jsonpath={.status.phase} {.status.containerStatuses[0].state.terminated.reason} {.status.containerStatuses[0].state.terminated.exitCode}")
			if err == nil && out != "Failed NodeShutdown 143" {
				err = fmt.Errorf("it is %q", out)
			}
			return err
		})
	}
	remove(t, pods...)
	must(t, "logind=/etc/systemd/logind.conf.d; mv /root/config.yaml "+kubeletConfig+"; rm -f $logind/99-kubelet.conf; rmdir --ignore-fail-on-non-empty $logind; systemctl restart systemd-logind kubelet")
	nodeReady(t)
	runVM(t)
}

const kubeletConfig = "/var/lib/kubelet/config.yaml"
