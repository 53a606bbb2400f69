//go:build cluster && slow

package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/wait"
)

// TestPulledBackup: a client reads a VM's backup by the URLs, the certificate and the token that the objects
// have, and later what the guest has written since. A backup is complete when it is deleted, or its
// time is over.
func TestPulledBackup(t *testing.T) {
	const name, token = "pulled", "correct-horse"
	disk, scratch := t.TempDir(), t.TempDir()
	sizedPVC(t, "pulled-disk", "Filesystem", disk, "64Mi")
	sizedPVC(t, "pulled-scratch", "Filesystem", scratch, "512Mi")
	configure := func(ctx context.Context, selectors string) error {
		_, err := suite.Kubectl(ctx, "patch", "kubevirt", "kubevirt", "--namespace=nodevirt", "--type=merge",
			`--patch={"spec": {"configuration": {"changedBlockTrackingLabelSelectors": `+selectors+`}}}`)
		return err
	}
	assert.NilError(t, configure(t.Context(), `{"virtualMachineLabelSelector": {"matchLabels": {"backup": "pulled"}}}`))
	undo(t, func(ctx context.Context) error { return configure(ctx, "null") })
	vm := counting(name, "pulled-disk")
	vm["metadata"].(object)["labels"] = object{"backup": "pulled"}
	made(t, vm)
	made(t, object{"apiVersion": "v1", "kind": "Secret", "metadata": object{"name": "pulled-token"}, "stringData": object{"token": token}})
	assert.NilError(t, suite.WaitFor(t.Context(), "vm/"+name, "jsonpath={.status.changedBlockTracking.state}=Enabled"))
	made(t, object{"apiVersion": "backup.kubevirt.io/v1alpha1", "kind": "VirtualMachineBackupTracker", "metadata": object{"name": name}, "spec": object{
		"source": object{"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": name},
	}})
	undo(t, func(ctx context.Context) error {
		if t.Failed() {
			about, _ := suite.Kubectl(ctx, "describe", "vmbackup,vmexport")
			more, _ := suite.Kubectl(ctx, "describe", "pods", "--selector=kubevirt.io=virt-exporter")
			t.Logf("%s\n%s", about, more)
		}
		return nil
	})
	begin := func(backup, ttl string) {
		t.Helper()
		made(t, object{"apiVersion": "backup.kubevirt.io/v1alpha1", "kind": "VirtualMachineBackup", "metadata": object{"name": backup}, "spec": object{
			"source":  object{"apiGroup": "backup.kubevirt.io", "kind": "VirtualMachineBackupTracker", "name": name},
			"pvcName": "pulled-scratch", "mode": "Pull", "tokenSecretRef": "pulled-token", "ttlDuration": ttl,
		}})
		assert.NilError(t, suite.WaitFor(t.Context(), "vmbackup/"+backup, `jsonpath={.status.conditions[?(@.type=="Progressing")].reason}=ExportReady`))
		assert.Equal(t, kubectl(t, "get", "vmi", name, "-o", "jsonpath={.status.changedBlockTracking.backupStatus.backupName}"), backup)
	}
	// pull fetches from an endpoint of the disk, on a node.
	pull := func(backup, endpoint, query, header string) ([]byte, error) {
		t.Helper()
		status := func(path string) string {
			t.Helper()
			return kubectl(t, "get", "vmbackup", backup, "-o", "jsonpath={.status."+path+"}")
		}
		url := status("includedVolumes[0]." + endpoint)
		host, _, _ := strings.Cut(strings.TrimPrefix(url, "https://"), "/")
		service, _, _ := strings.Cut(host, ".")
		address := kubectl(t, "get", "service", service, "-o", "jsonpath={.spec.clusterIP}")
		dir := t.TempDir()
		trust, headers, body := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "headers"), filepath.Join(dir, "body")
		assert.NilError(t, os.WriteFile(trust, []byte(status("endpointCert")), 0o600))
		assert.NilError(t, os.WriteFile(headers, []byte("x-kubevirt-export-token: "+header), 0o600))
		if _, err := suite.Nodes()[0].Output(t.Context(), "curl", "--fail", "--silent", "--show-error", "--cacert", trust, "--header", "@"+headers,
			"--resolve", host+":443:"+address, "--output", body, url+query); err != nil {
			return nil, err
		}
		return os.ReadFile(body)
	}
	gone := func(backup string) {
		t.Helper()
		wait.Until(t, "nothing is left of backup "+backup, func() bool {
			files, err := filepath.Glob(filepath.Join(scratch, name, "*"))
			status, problem := suite.Kubectl(t.Context(), "get", "vmi", name, "-o", "jsonpath={.status.changedBlockTracking.backupStatus}")
			export, worse := suite.Kubectl(t.Context(), "get", "vmexport", backup, "--ignore-not-found", "-o", "name")
			return err == nil && problem == nil && worse == nil && len(files) == 0 && status == "" && export == ""
		})
	}
	latest := func() string {
		t.Helper()
		return kubectl(t, "get", "vmbackuptracker", name, "-o", "jsonpath={.status.latestCheckpoint.name}")
	}
	const fill = "dd if=/dev/urandom of=/dev/vdb bs=64k seek=%d count=%d conv=fsync 2>/dev/null"

	inGuest(t, name, fmt.Sprintf(fill, 0, 64))
	begin("pull-1", "30m")
	before, err := os.ReadFile(filepath.Join(disk, "disk.img"))
	assert.NilError(t, err)
	inGuest(t, name, fmt.Sprintf(fill, 32, 64))
	if _, err := pull("pull-1", "dataEndpoint", "", "wrong"); err == nil {
		t.Error("a client with another token reads the backup")
	}
	copied, err := pull("pull-1", "dataEndpoint", "", token)
	assert.NilError(t, err)
	assert.Assert(t, bytes.Equal(copied, before), "%d bytes, want %d", len(copied), len(before))
	assert.Equal(t, latest(), "")
	kubectl(t, "delete", "vmbackup", "pull-1")
	assert.Assert(t, strings.HasPrefix(latest(), "pull-1-"))
	gone("pull-1")

	begin("pull-2", "1m")
	assert.Equal(t, kubectl(t, "get", "vmbackup", "pull-2", "-o", "jsonpath={.status.type}"), "Incremental")
	text, err := pull("pull-2", "mapEndpoint", "?page_size=10000", token)
	assert.NilError(t, err)
	var page struct {
		Extents []struct {
			Offset, Length int
			Description    string
		} `json:"extents"`
	}
	assert.NilError(t, json.Unmarshal(text, &page))
	const blocks = 64
	n := 0
	for _, e := range page.Extents {
		if !strings.HasPrefix(e.Description, "dirty") {
			continue
		}
		content, err := pull("pull-2", "dataEndpoint", fmt.Sprintf("?offset=%d&length=%d", e.Offset, e.Length), token)
		assert.NilError(t, err)
		n += copy(copied[e.Offset:], content)
	}
	if n > blocks*64<<10*11/10 || n < blocks*64<<10 {
		t.Errorf("the client read %d bytes, for %d that were written", n, blocks*64<<10)
	}
	assert.NilError(t, suite.WaitFor(t.Context(), "vmbackup/pull-2", "condition=Complete"))
	assert.Assert(t, strings.HasPrefix(latest(), "pull-2-"))
	gone("pull-2")
	now, err := os.ReadFile(filepath.Join(disk, "disk.img"))
	assert.NilError(t, err)
	assert.Assert(t, bytes.Equal(copied, now))
	kubectl(t, "delete", "vmbackup", "pull-2")
	kubectl(t, "delete", "vm", name) // before the PVCs
}
