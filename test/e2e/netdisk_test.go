//go:build slow || ceph

package e2e

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/wait"
)

// The target of another server, and the account for one of its disks.
const (
	sanUser     = "guests"
	sanPassword = "p%w@rd-never-seen"
)

// san is a server of iSCSI disks beside the node's tgtd.
type san struct {
	t      *testing.T
	socket string
	portal string
	// open and chap are targets. The node takes targets of the same name for one, whatever their portal.
	open, chap string
	end        func()
}

// newSAN starts a server at a portal. It serves a copy of the guest's disk on two targets: open
// to all initiators, and chap to those with the account.
func newSAN(t *testing.T, name, portal string) *san {
	t.Helper()
	target := "iqn.2026-11.com.example:" + name
	s := &san{t: t, socket: "TGT_IPC_SOCKET=/run/nodevirt-tgtd/" + name, portal: portal, open: target, chap: target + ".chap"}
	from, err := guest.Tiny(t.Context(), suite.GuestOptions())
	assert.NilError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	daemon := suite.Command(ctx, "env", s.socket, "tgtd", "-f", "-t", "1", "--iscsi", "portal="+portal)
	assert.NilError(t, daemon.Start())
	s.end = func() {
		cancel()
		_ = daemon.Wait() // it was killed
	}
	t.Cleanup(s.end)
	wait.Until(t, "the server answers", func() bool {
		_, err := suite.Output(t.Context(), "env", s.socket, "tgtadm", "--lld", "iscsi", "--mode", "sys", "--op", "show")
		return err == nil
	})
	s.adm("account", "new", "--user", sanUser, "--password", sanPassword)
	for i, target := range []string{s.open, s.chap} {
		disk := filepath.Join(t.TempDir(), "disk.raw")
		inNode(t, "qemu-img", "convert", "-O", "raw", from, disk)
		tid := string(rune('1' + i))
		s.adm("target", "new", "--tid", tid, "--targetname", target)
		s.adm("logicalunit", "new", "--tid", tid, "--lun", "2", "--backing-store", disk)
		s.adm("target", "bind", "--tid", tid, "--initiator-address", "ALL")
	}
	s.adm("account", "bind", "--tid", "2", "--user", sanUser)
	return s
}

func (s *san) adm(mode, op string, args ...string) {
	s.t.Helper()
	inNode(s.t, "env", append([]string{s.socket, "tgtadm", "--lld", "iscsi", "--mode", mode, "--op", op}, args...)...)
}

// disk is the PVC on a target, as the controller describes it.
func (s *san) disk(pvc, target string, portals ...string) vmspec.NetworkDisk {
	d := vmspec.NetworkDisk{PVC: pvc, Volume: "pv-" + pvc, ISCSI: &vmspec.ISCSIVolume{
		Portals: append(portals, s.portal), Target: target, LUN: 2,
	}}
	if target == s.chap {
		d.SecretName, d.SecretMount = "chap", "root-chap"
	}
	return d
}

// onNetwork is a pod whose VM has one disk.
func onNetwork(t *testing.T, suffix, device string, disk vmspec.NetworkDisk) *pod {
	t.Helper()
	text, err := json.Marshal(map[string]vmspec.NetworkDisk{"root": disk})
	assert.NilError(t, err)
	return vmPod(t, named(suffix), annotated(map[string]string{
		vmspec.AnnotationVMContainer:  "guest",
		vmspec.AnnotationNetworkDisks: string(text),
		vmspec.AnnotationVMI: `{"domain": {"devices": {"disks": [{"name": "root", ` + device + `}]}},
			"volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": "` + disk.PVC + `"}}]}`,
	}))
}

const virtioDisk = `"disk": {"bus": "virtio"}`

// mountsSecret mounts a Secret as a kubelet does.
func mountsSecret(t *testing.T, name string, files map[string]string) func(*runtimeapi.ContainerConfig) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "volumes", "kubernetes.io~secret", name)
	assert.NilError(t, os.MkdirAll(filepath.Join(dir, "..1"), 0o700))
	assert.NilError(t, os.Symlink("..1", filepath.Join(dir, "..data")))
	for file, text := range files {
		assert.NilError(t, os.WriteFile(filepath.Join(dir, "..1", file), []byte(text), 0o600))
	}
	return func(c *runtimeapi.ContainerConfig) {
		c.Mounts = append(c.Mounts, &runtimeapi.Mount{ContainerPath: "/volumes/" + name, HostPath: dir, Readonly: true})
	}
}

func chapSecret(t *testing.T, password string) func(*runtimeapi.ContainerConfig) {
	t.Helper()
	return mountsSecret(t, "root-chap", map[string]string{"node.session.auth.username": sanUser, "node.session.auth.password": password})
}

// TestPVCsOnISCSI: a VM boots from a target, by the first portal that answers, and keeps its data. Another
// VM of the node is refused the disk meanwhile. Nothing shows the password.
func TestPVCsOnISCSI(t *testing.T) {
	t.Parallel()
	s := newSAN(t, "san", "127.0.0.1:3270")
	for name, tt := range map[string]struct{ target, device string }{
		"open": {s.open, virtioDisk},
		"lun":  {s.open, `"lun": {}`},
		"chap": {s.chap, virtioDisk},
	} {
		t.Run(name, func(t *testing.T) { // the first two have one disk
			secret := chapSecret(t, sanPassword)
			if tt.target != s.chap {
				secret = func(*runtimeapi.ContainerConfig) {}
			}
			first := onNetwork(t, "first", tt.device, s.disk("data", tt.target, "127.0.0.1:3279")).vm(suite.tiny, secret).start()
			if first.up(); tt.device == virtioDisk {
				first.post("/cgi-bin/disk", "kept "+name)
			}
			xml := inNode(t, "virsh", "dumpxml", first.info().VM.Domain.Name)
			for _, want := range []string{"protocol='iscsi' name='" + tt.target + "/2'", "<host name='127.0.0.1' port='3270'/>"} {
				if !strings.Contains(xml, want) {
					t.Errorf("the XML has no %s:\n%s", want, xml)
				}
			}
			if tt.target == s.chap {
				first.keepsSecret(sanPassword)
				if has := inNode(t, "virsh", "secret-list"); !strings.Contains(has, first.id) {
					t.Errorf("libvirtd has no secret of the disk:\n%s", has)
				}
			}
			other := onNetwork(t, "other", virtioDisk, s.disk("alias", tt.target))
			config := other.vmConfig(suite.tiny)
			secret(config)
			_, err := suite.cri.CreateContainer(t.Context(), other.createRequest(config))
			if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "PVC alias") || !strings.Contains(err.Error(), "in use by another VM") {
				t.Errorf("a second VM on the disk: %v", err)
			}
			first.stop(60)
			first.removeIt()
			if left := inNode(t, "virsh", "secret-list"); strings.Contains(left, first.id) {
				t.Errorf("left:\n%s", left)
			}
			if tt.device != virtioDisk {
				return
			}
			next := other.vm(suite.tiny, secret).start().up()
			if got := next.page("/cgi-bin/disk"); got != "kept "+name {
				t.Errorf("another VM reads %q from the disk", got)
			}
			next.stop(60)
			next.removeIt()
		})
	}
}

// TestBadPVCsOnISCSI: errors name the PVC and what to look at.
func TestBadPVCsOnISCSI(t *testing.T) {
	t.Parallel()
	s := newSAN(t, "bad", "127.0.0.1:3271")
	const wrong = "another-password"
	gone := s.disk("gone", s.open)
	gone.ISCSI.LUN = 7
	for name, tt := range map[string]struct {
		disk   vmspec.NetworkDisk
		change func(*runtimeapi.ContainerConfig)
		want   []string
	}{
		"password": {s.disk("locked", s.chap), chapSecret(t, wrong), []string{"PVC locked", s.chap, "Secret chap", "accepts these credentials"}},
		"no disk":  {gone, func(*runtimeapi.ContainerConfig) {}, []string{"PVC gone", "LUN 7", "check that the disk exists"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := onNetwork(t, name, virtioDisk, tt.disk).vm(suite.tiny, tt.change)
			_, err := suite.cri.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: c.id})
			for _, want := range tt.want {
				if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), wrong) {
					t.Errorf("%v; want %q", err, want)
				}
			}
			if s := c.status(); s.ExitCode != 128 || s.Reason != "StartError" {
				t.Errorf("the container is %v", s)
			}
		})
	}
	s.end()
	p := onNetwork(t, "away", virtioDisk, s.disk("away", s.open))
	_, err := suite.cri.CreateContainer(t.Context(), p.createRequest(p.vmConfig(suite.tiny)))
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "PVC away") || !strings.Contains(err.Error(), "no portal answers") {
		t.Errorf("without its server: %v", err)
	}
}
