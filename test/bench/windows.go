package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/bench/report"
	"github.com/nodevirt/nodevirt/test/guest"
)

const (
	// windowsVMI has the firmware and the devices that manifests of Windows guests have.
	windowsVMI = `{
		"domain": {
			"clock": {"utc": {}, "timer": %s},
			"cpu": {"cores": 2},
			"features": {"acpi": {}, "apic": {}, "smm": {}%s},
			"firmware": {"bootloader": {"efi": {"secureBoot": true}}},
			"devices": {
				"tpm": {}, "autoattachGraphicsDevice": true, "inputs": [{"name": "tablet", "type": "tablet", "bus": "usb"}],
				"interfaces": [{"name": "default", "masquerade": {}}], "disks": [{"name": "system", "disk": {"bus": "sata"}}]
			}
		},
		"networks": [{"name": "default", "pod": {}}],
		"volumes": [{"name": "system", "containerDisk": {"image": ""}}]
	}`
	windowsTimers = `{"hpet": {"present": false}, "pit": {"tickPolicy": "delay"}, "rtc": {"tickPolicy": "catchup"}, "hyperv": {}}`
	windowsHyperv = `, "hyperv": {"relaxed": {}, "vapic": {}, "spinlocks": {"spinlocks": 8191}, "vpindex": {}, "synic": {},
		"synictimer": {"direct": {}}, "reset": {}, "runtime": {}, "frequencies": {}, "tlbflush": {}, "ipi": {}}`
	otherTimers = `{"hpet": {"present": true}}`

	// windowsMemory is for Linux behind the firmware's boot loaders, in bytes.
	windowsMemory = 384 << 20
	// What the processor time of QEMU is read for, after guests have settled.
	idleSpans, idleSpan = 3, 20 * time.Second
)

// windows compares the processor time of an idle guest as Windows needs it with that of an equal one without Windows'
// timers and enlightenments. No Windows is at hand: Debian's signed kernel stands for it.
func (r *rig) windows(ctx context.Context) (s report.Section, err error) {
	s.Title = "QEMU's processor time for an idle guest as Windows needs it: secure boot, TPM, SATA, USB tablet"
	s.Notes = []string{
		"Against the same guest with an HPET, without timers and Hyper-V's enlightenments. Without KVM there are",
		fmt.Sprintf("no enlightenments. Both run Debian's signed kernel at the same time, %d times %s.", idleSpans, idleSpan),
	}
	disk, err := guest.TinyWithUEFI(ctx, r.GuestOptions())
	if err != nil {
		return s, err
	}
	image, err := r.pushDisk(ctx, "tiny-uefi:1", disk)
	if err != nil {
		return s, err
	}
	without, with := report.Series{Of: "without"}, report.Series{Of: "as Windows needs it"}
	var pods []*pod
	defer func() {
		for _, p := range pods {
			err = errors.Join(err, p.remove(context.WithoutCancel(ctx)))
		}
	}()
	var emulators []int
	for _, vmi := range []string{fmt.Sprintf(windowsVMI, otherTimers, ""), fmt.Sprintf(windowsVMI, windowsTimers, windowsHyperv)} {
		p, pid, err := r.emulated(ctx, fmt.Sprintf("windows-%d", len(emulators)), vmi, image, emulators)
		if p != nil {
			pods = append(pods, p)
		}
		if err != nil {
			return s, err
		}
		emulators = append(emulators, pid)
	}
	for _, p := range pods {
		if err := p.boots(ctx); err != nil {
			return s, err
		}
	}
	if err := pause(ctx, settle); err != nil {
		return s, err
	}
	for range idleSpans {
		used, err := shares(ctx, emulators, idleSpan)
		if err != nil {
			return s, err
		}
		without.Add(used[0])
		with.Add(used[1])
	}
	s.Rows = []report.Row{{Name: "idle, of a core", Unit: "%", Kind: report.Ratio, Baseline: without, Measured: with}}
	return s, nil
}

// emulated runs a VM and returns its emulator's process number, which is none of others. The pod that was made is
// returned with an error, too.
func (r *rig) emulated(ctx context.Context, name, vmi, image string, others []int) (p *pod, pid int, err error) {
	if p, err = r.annotatedPod(ctx, name, "vm", vmspec.AnnotationVMI, vmi); err != nil {
		return nil, 0, err
	}
	p.memory = windowsMemory
	if _, err := p.run(ctx, "guest", image); err != nil {
		return p, 0, err
	}
	all, err := processes(r.PID())
	if err != nil {
		return p, 0, err
	}
	for _, one := range all {
		if strings.HasPrefix(one.name, "qemu-system") && !slices.Contains(others, one.pid) {
			return p, one.pid, nil
		}
	}
	return p, 0, fmt.Errorf("no QEMU runs for pod %s", name)
}

// boots waits for the last line of a guest's boot on its console. With secure boot the guest has no network: its
// kernel loads no module without a signature.
func (p *pod) boots(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("the guest does not boot in time"))
	defer cancel()
	for {
		text, err := os.ReadFile(filepath.Join(p.config.LogDirectory, "guest_0.log"))
		if err != nil {
			return err
		}
		if bytes.Contains(text, []byte("nodevirt guest: up")) {
			return nil
		}
		if err := pause(ctx, time.Second); err != nil {
			return fmt.Errorf("pod %s: %w", p.config.Metadata.Name, context.Cause(ctx))
		}
	}
}
