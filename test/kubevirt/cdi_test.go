//go:build kubevirt

package kubevirt

import (
	"bufio"
	"context"
	_ "embed"
	"fmt"
	"os"

	"github.com/nodevirt/nodevirt/test/cluster"
)

// storageProfile says what the cluster's StorageClass can do, for DataVolumes that do not: CDI knows nothing of
// the driver. The first set is the default.
const storageProfile = `{"spec": {"claimPropertySets": [
	{"accessModes": ["ReadWriteOnce"], "volumeMode": "Block"},
	{"accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem"}
]}}`

//go:embed testdata/upload.yaml
var uploadFixtures string

// describeStorage says of each StorageClass, also of those that specs make, what it can do.
func describeStorage(ctx context.Context, c *cluster.Cluster) error {
	watch := c.KubectlCommand(ctx, "get", "storageprofiles", "--watch", "--output=name")
	names, err := watch.StdoutPipe()
	if err == nil {
		err = watch.Start()
	}
	if err != nil {
		return fmt.Errorf("watch the StorageProfiles: %w", err)
	}
	go func() {
		patched := map[string]bool{}
		for lines := bufio.NewScanner(names); lines.Scan(); {
			if name := lines.Text(); !patched[name] {
				_, err := c.Kubectl(ctx, "patch", name, "--type=merge", "--patch", storageProfile)
				patched[name] = err == nil // its next change is another try
			}
		}
		_ = watch.Wait() // it ends with the cluster
	}()
	return nil
}

// withStorage reports whether the cluster has a StorageClass and CDI. The fast specs need neither.
func withStorage() bool { return os.Getenv(fastVariable) == "" }

// startCDI gives a cluster CDI, for the specs of DataVolumes.
func startCDI(ctx context.Context, c *cluster.Cluster) error {
	if err := c.StartCDI(ctx); err != nil {
		return err
	}
	if err := c.WaitFor(ctx, "storageprofile/local", "jsonpath={.status.storageClass}=local"); err != nil {
		return err
	}
	if err := describeStorage(ctx, c); err != nil {
		return err
	}
	if err := c.WaitFor(ctx, "storageprofile/local", "jsonpath={.status.claimPropertySets[0].volumeMode}=Block"); err != nil {
		return err
	}
	// For virtctl, which runs where the control plane does: the port of the first node.
	const uploads = `{"spec": {"config": {"uploadProxyURLOverride": "https://10.200.0.11:31001"}}}`
	if _, err := c.Kubectl(ctx, "patch", "cdi", "cdi", "--type=merge", "--patch", uploads); err != nil {
		return err
	}
	return c.Apply(ctx, uploadFixtures)
}
