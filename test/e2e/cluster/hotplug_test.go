//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/loopfs"
	"github.com/nodevirt/nodevirt/test/wait"
)

// TestHotplug: a running VM gets a device and an empty file system by virtctl and by its template, keeps what
// it should after a restart, and loses both again. So it does with a registry disk.
func TestHotplug(t *testing.T) {
	t.Parallel()
	const name = "plugged"
	device, folder := loopfs.Device(t, 96<<20), t.TempDir()
	localPVC(t, "plugged-block", "Block", device)
	localPVC(t, "plugged-files", "Filesystem", folder)
	made(t, object{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": object{"name": name},
		"spec": object{"runStrategy": "Always", "template": object{"spec": object{
			"terminationGracePeriodSeconds": 60,
			"nodeSelector":                  object{"kubernetes.io/hostname": "node-1"},
			"domain": object{
				"memory":  object{"guest": "128Mi"},
				"devices": object{"disks": []object{{"name": "boot", "disk": object{"bus": "virtio"}}}},
			},
			"volumes": []object{{"name": "boot", "containerDisk": object{"image": suite.tiny}}},
		}}},
	})
	v := &virtctl{t: t, seen: map[string]bool{}}
	phase := func(volume, want string) {
		t.Helper()
		assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+name,
			fmt.Sprintf(`jsonpath={.status.volumeStatus[?(@.name==%q)].phase}=%s`, volume, want)))
	}
	ip := func() string {
		return kubectl(t, "get", "vmi", name, "-o", "jsonpath={.status.interfaces[0].ipAddress}")
	}
	lost := func(volume string) {
		t.Helper()
		wait.Success(t, "the guest without "+volume, func(ctx context.Context) error {
			page, err := ask(ctx, ip(), "/cgi-bin/info")
			if err == nil && strings.Contains(page, volume) {
				err = fmt.Errorf("it has the disk: %q", page)
			}
			return err
		})
		wait.Until(t, "no attachment pod of "+volume, func() bool {
			return !strings.Contains(kubectl(t, "get", "pods", "-l", "kubevirt.io=hotplug-disk", "-o", "name"), "hp-volume-"+volume)
		})
	}
	addressOf(t, name)

	v.works("addvolume "+name+" --volume-name=plugged-block", "Successfully submitted add volume request")
	v.works("addvolume "+name+" --volume-name=plugged-files --persist", "Successfully submitted add volume request")
	for _, volume := range []string{"plugged-block", "plugged-files"} {
		phase(volume, "Ready")
		asked(t, ip(), "/cgi-bin/info", volume) // its serial number
	}
	v.refused("addvolume "+name+" --volume-name=plugged-block", "already exists")
	v.refused("removevolume "+name+" --volume-name=boot", "is not hotpluggable")
	reason := kubectl(t, "get", "vmi", name, "-o", `jsonpath={.status.conditions[?(@.type=="LiveMigratable")].status}`)
	assert.Equal(t, reason, "False")
	info, err := os.Stat(folder + "/disk.img")
	assert.NilError(t, err)
	assert.Equal(t, info.Size(), int64(96<<20))

	// A guest that boots again keeps both.
	before := answerOf(t, name, "")
	v.works("reset "+name, "VMI "+name+" was scheduled to reset")
	before = answerOf(t, name, before)
	for _, volume := range []string{"plugged-block", "plugged-files"} {
		asked(t, ip(), "/cgi-bin/info", volume)
	}

	// A disk of the instance alone ends with it.
	v.works("restart "+name, "was scheduled to restart")
	answerOf(t, name, before)
	phase("plugged-files", "Ready")
	asked(t, ip(), "/cgi-bin/info", "plugged-files")
	lost("plugged-block")

	// By its template, and back.
	disks := `[{"op": "add", "path": "/spec/template/spec/domain/devices/disks/-", "value": {"name": "declared", "serial": "declared", "disk": {"bus": "virtio"}}},
		{"op": "add", "path": "/spec/template/spec/volumes/-", "value": {"name": "declared", "persistentVolumeClaim": {"claimName": "plugged-block", "hotpluggable": true}}}]`
	kubectl(t, "patch", "vm", name, "--type=json", "--patch="+disks)
	phase("declared", "Ready")
	asked(t, ip(), "/cgi-bin/info", "declared")
	kubectl(t, "patch", "vm", name, "--type=json", `--patch=[{"op": "remove", "path": "/spec/template/spec/domain/devices/disks/2"},
		{"op": "remove", "path": "/spec/template/spec/volumes/2"}]`)
	lost("declared")

	// A registry disk by its template, which the guest only reads.
	kubectl(t, "patch", "vm", name, "--type=json", "--patch="+fmt.Sprintf(
		`[{"op": "add", "path": "/spec/template/spec/domain/devices/disks/-", "value": {"name": "tools", "disk": {"bus": "scsi", "readonly": true}}},
		{"op": "add", "path": "/spec/template/spec/volumes/-", "value": {"name": "tools", "containerDisk": {"image": %q}}}]`, suite.tiny))
	phase("tools", "Ready")
	asked(t, ip(), "/cgi-bin/info", "tools")
	assert.Equal(t, kubectl(t, "get", "vm", name, "-o", `jsonpath={.status.conditions[?(@.type=="RestartRequired")].message}`), "")
	kubectl(t, "patch", "vm", name, "--type=json", `--patch=[{"op": "remove", "path": "/spec/template/spec/domain/devices/disks/2"},
		{"op": "remove", "path": "/spec/template/spec/volumes/2"}]`)
	lost("tools")
	v.works("removevolume "+name+" --volume-name=plugged-files --persist", "Successfully submitted remove volume request")
	lost("plugged-files")
	kubectl(t, "delete", "vm", name) // before the PVCs
}
