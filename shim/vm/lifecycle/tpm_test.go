package lifecycle_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/uefi"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// TestTPM: a VM's TPM has its own user id, is in the VM's group, and outlives the
// shim, but not the VM.
func TestTPM(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		id, err := n.Create(t.Context(), n.addPod(t, "pod", withTPM()), request(0))
		must(t, err)
		must(t, n.Start(t.Context(), id))
		r := n.rec(t, id)
		o, runs, _ := n.tpms.Owner(id)
		if !runs || o.UID == 0 || o.UID == r.Domain.UID || o.UID != r.Domain.TPMUID || o.Client != r.Domain.UID {
			t.Errorf("its owner is %+v, %t; the domain is %+v", o, runs, r.Domain)
		}
		n.end()
		n.join()
		must(t, n.Recover(t.Context()))
		n.run(t)
		if _, runs, _ := n.tpms.Owner(id); !runs {
			t.Error("the shim's restart ended it")
		}
		n.tpms.Kill(id)
		time.Sleep(2 * time.Minute)
		if n.log.count("swtpm ended: the guest has no TPM") != 1 {
			t.Errorf("log:\n%s", n.log.text.String())
		}
		if got := n.conditions.Impaired(id); !strings.Contains(got, "the guest has no TPM, and a reset") {
			t.Errorf("its pod's condition says %q", got)
		}
		n.libvirt.End(r.Domain.UUID, domain.ReasonFailed) // at a reset
		time.Sleep(time.Second)
		n.wantEnd(t, id, 137, "Error", "swtpm had ended before")
		must(t, n.Remove(t.Context(), id))
		n.wantNothing(t)
	})
}

// TestTPMWithoutUser: two VMs with TPMs need four user ids, and the node has three.
func TestTPMWithoutUser(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		_, err := n.Create(t.Context(), n.addPod(t, "one", withTPM()), request(0))
		must(t, err)
		_, err = n.Create(t.Context(), n.addPod(t, "two", withTPM()), request(0))
		wantError(t, err, "all 3 user ids for VMs are taken")
	})
}

// TestStrayTPM: a shim that starts ends the TPM of a VM without a record.
func TestStrayTPM(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		id, err := n.Create(t.Context(), n.addPod(t, "pod", withTPM()), request(0))
		must(t, err)
		must(t, n.Start(t.Context(), id))
		uuid := n.rec(t, id).Domain.UUID
		n.end()
		n.libvirt.End(uuid, domain.ReasonShutdown)
		must(t, n.store.RemoveContainer(id))
		n.join()
		must(t, n.Recover(t.Context()))
		if left := n.tpms.Left(); len(left) > 0 {
			t.Errorf("left %v", left)
		}
	})
}

const uefiVMI = `{"domain": {"firmware": {"bootloader": {"efi": {"secureBoot": false}}},
	"devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]}},
	"volumes": [{"name": "root", "containerDisk": {"image": "example.com/vm:1"}}]}`

// TestUEFI: the record has the firmware that the node has, and the VM a copy of its variables.
func TestUEFI(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		annotations := map[string]string{vmspec.AnnotationVMI: uefiVMI}
		pod := n.addPod(t, "pod", annotations)
		_, err := n.Create(t.Context(), pod, request(0))
		wantError(t, err, "spec.domain.firmware.bootloader.efi: ", "install ovmf")
		if !errors.Is(err, uefi.ErrMissing) {
			t.Error(err)
		}
		variables := n.addFirmware(t)
		id, err := n.Create(t.Context(), pod, request(1))
		must(t, err)
		if f := n.rec(t, id).Firmware; f == nil || f.Code != "/code.fd" || f.Variables != variables {
			t.Errorf("firmware %+v", f)
		}
		text, err := os.ReadFile(filepath.Join(n.layout.Folder(id), "uefi-variables"))
		if err != nil || string(text) != "variables" {
			t.Errorf("%q, %v", text, err)
		}
		must(t, n.Remove(t.Context(), id))
		n.wantNothing(t)
	})
}

// addFirmware gives the node a UEFI firmware, and returns the path of its variables.
func (n *node) addFirmware(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(n.dir, "firmware")
	variables := filepath.Join(n.dir, "vars.fd")
	must(t, errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(variables, []byte("variables"), 0o644),
		os.WriteFile(filepath.Join(dir, "60.json"), []byte(strings.ReplaceAll(`{"interface-types": ["uefi"], "mapping": {"device": "flash",
			"executable": {"filename": "/code.fd", "format": "raw"}, "nvram-template": {"filename": "VARS", "format": "raw"}},
			"targets": [{"architecture": "x86_64", "machines": ["pc-q35-*"]}]}`, "VARS", variables)), 0o644)))
	return variables
}
