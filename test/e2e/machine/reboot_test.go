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
	if !*asVM {
		pods = append(pods, guestPod("volume", onVolume))
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
	if !*asVM { // its disk is not new after the reboot
		if lines := strings.Fields(page(t, "volume", "/cgi-bin/disk")); len(lines) != closings() {
			t.Errorf("the volume has %d of %d writes: %q", len(lines), closings(), lines)
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

const kubeletConfig = "/var/lib/kubelet/config.yaml"
