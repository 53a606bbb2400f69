package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/imageunpack/iscsi"
	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/wait"
)

// overISCSI has all of a pod's registry disks over iSCSI.
func overISCSI(c *runtimeapi.PodSandboxConfig) {
	c.Annotations = map[string]string{vmspec.AnnotationDiskMode: string(vmspec.ModeISCSI)}
}

// target waits until the machine's disk is served to it, and returns what tgtd reports of it.
func (c *container) target() iscsi.Status {
	c.t.Helper()
	text := c.infoText()
	var mine iscsi.Status
	wait.Until(c.t, "the disk is served", func() bool {
		all, err := suite.Targets(c.t.Context())
		for _, s := range all {
			if err == nil && strings.Contains(text, s.Name) && len(s.Initiators) == 1 {
				mine = s
				return true
			}
		}
		return false
	})
	return mine
}

// TestISCSIDisk: a guest runs from a disk that is served to it alone, whose password nothing shows,
// and of which nothing is left.
func TestISCSIDisk(t *testing.T) {
	t.Parallel()
	c := vmPod(t, overISCSI).vm(suite.tiny).start().up()
	c.post("/cgi-bin/disk", "mine")
	if got := c.page("/cgi-bin/disk"); got != "mine" {
		t.Errorf("the disk holds %q", got)
	}
	s := c.target()
	if d := c.vmInfo().Disks; len(d) != 1 || d[0].Mode != vmspec.ModeISCSI {
		t.Errorf("the disks are %+v", d)
	}
	key, err := iscsi.OpenKey(filepath.Join(suite.Dir(), "nodevirt/iscsi.key"))
	assert.NilError(t, err)
	access := key.Access(c.id + "/disk")
	if access.Name != s.Name {
		t.Fatalf("the target is %s, and should be %s", s.Name, access.Name)
	}
	c.keepsSecret(access.Password.Reveal())

	// Another initiator that has the password, and the right one that has none.
	for _, strange := range []iscsi.Access{
		{Name: access.Name, Initiator: "iqn.2008-11.org.linux-kvm:other", User: access.User, Password: access.Password},
		{Name: access.Name, Initiator: access.Initiator},
	} {
		if out, err := suite.Output(t.Context(), "iscsi-readcapacity16", "-i", strange.Initiator, url(strange)); err == nil {
			t.Errorf("%v is let in: %s", strange, out)
		}
	}
	c.stop(60)
	c.removeIt()
	all, err := suite.Targets(t.Context())
	assert.NilError(t, err)
	for _, left := range all {
		if left.Name == s.Name {
			t.Errorf("left: %v", left)
		}
	}
	if secrets := inNode(t, "virsh", "secret-list"); strings.Contains(secrets, c.id) {
		t.Errorf("left:\n%s", secrets)
	}
}

// url names a disk of the node's own to libiscsi's tools.
func url(a iscsi.Access) string {
	account := ""
	if a.User != "" {
		account = a.User + "%" + a.Password.Reveal() + "@"
	}
	return "iscsi://" + account + "127.0.0.1:3260/" + a.Name + "/1"
}

// keepsSecret looks for a running VM's password where others could read it.
func (c *container) keepsSecret(password string) {
	c.t.Helper()
	c.keepsSecretOf(password, inNode(c.t, "virsh", "dumpxml", "--security-info", c.info().VM.Domain.Name))
}

// keepsSecretOf is keepsSecret of a VM with this XML; none if it has ended.
func (c *container) keepsSecretOf(password, xml string) {
	c.t.Helper()
	places := map[string]string{
		"the XML":     xml,
		"the status":  c.infoText(),
		"the secrets": inNode(c.t, "sh", "-c", "cat /etc/libvirt/secrets/* /run/libvirt/secrets/* 2>/dev/null; true"),
		"processes":   inNode(c.t, "sh", "-c", "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null; true"),
	}
	assert.NilError(c.t, filepath.WalkDir(suite.Dir(), func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() && (e.Name() == "containerd" || e.Name() == "registry") {
			return filepath.SkipDir
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && info.Size() < 4*mebibyte {
			text, _ := os.ReadFile(path)
			places[path] = string(text)
		}
		return nil
	}))
	for place, text := range places {
		if strings.Contains(text, password) {
			c.t.Errorf("%s has the password", place)
		}
	}
}

// TestISCSIWithoutTgtd is not parallel: all tests share tgtd. A VM that needs it says what is missing,
// and leaves nothing that the next one stumbles over.
func TestISCSIWithoutTgtd(t *testing.T) {
	assert.NilError(t, suite.Kill(t.Context(), node.Tgtd, syscall.SIGKILL))
	t.Cleanup(func() { _ = suite.Resume(context.WithoutCancel(t.Context()), node.Tgtd) }) // where the test ended early
	p := vmPod(t, overISCSI)
	c := p.vm(suite.tiny)
	_, err := suite.cri.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: c.id})
	if err == nil || !strings.Contains(err.Error(), "tgtd is not available") || !strings.Contains(err.Error(), "nodevirt-tgtd") {
		t.Errorf("without tgtd: %v", err)
	}
	if s := c.status(); s.ExitCode != 128 || s.Reason != "StartError" {
		t.Errorf("without tgtd the container is %v", s)
	}
	assert.NilError(t, suite.Resume(t.Context(), node.Tgtd))
	config := p.vmConfig(suite.tiny)
	config.Metadata.Attempt, config.LogPath = 1, "guest_1.log"
	p.create(config).start().up()
}
