package cluster

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/test/csi"
	"github.com/nodevirt/nodevirt/test/loopdev"
	"github.com/nodevirt/nodevirt/test/node"
)

// CSI is the driver's part on a node, beside the kubelet, and that of the control plane.
const CSI = "csi-driver"

//go:embed manifests/storage.yaml
var storageManifests string

// storage is the driver's folder, which all nodes see.
func (o Options) storage() string { return o.path("storage") }

// startStorage makes the cluster one that provides volumes: by the StorageClass local at once, by
// local-wait when a pod needs them.
func (c *Cluster) startStorage(ctx context.Context) error {
	crds, err := os.ReadFile(c.o.bin("csi-snapshot-crds.yaml"))
	if err != nil {
		return fmt.Errorf("find the CRDs of snapshots; were the tools built? %w", err)
	}
	if err := c.Apply(ctx, string(crds)); err != nil {
		return err
	}
	for _, kind := range []string{"volumesnapshots", "volumesnapshotcontents", "volumesnapshotclasses"} {
		if err := c.WaitFor(ctx, "crd/"+kind+".snapshot.storage.k8s.io", "condition=Established"); err != nil {
			return err
		}
	}
	if err := c.Apply(ctx, storageManifests); err != nil {
		return err
	}
	for _, component := range c.o.storageControl() {
		if err := c.control.Add(ctx, component); err != nil {
			return err
		}
	}
	return nil
}

// storageControl lists the daemons of the control plane that provide volumes.
func (o Options) storageControl() []node.Component {
	socket := o.path("control", "csi.sock")
	all := []node.Component{{
		Name:  CSI,
		Args:  []string{o.bin("csi-driver"), "-controller", "-dir=" + o.storage(), "-endpoint=" + socket},
		Ready: listens(socket),
	}}
	for i, sidecar := range [][]string{
		{"csi-provisioner", "--csi-address=" + socket, "--default-fstype=xfs", "--timeout=1m"},
		{"csi-attacher", "--csi-address=" + socket, "--timeout=1m"},
		{"csi-resizer", "--csi-address=" + socket},
		{"csi-snapshotter", "--csi-address=" + socket},
		{"snapshot-controller", "--retry-crd-interval-max=1s"}, // those of groups are missing
	} {
		address := fmt.Sprintf("127.0.0.1:%d", 9810+i)
		all = append(all, node.Component{
			Name: sidecar[0],
			Args: append([]string{
				o.bin(sidecar[0]), "--kubeconfig=" + o.path("pki", "csi.kubeconfig"), "--http-endpoint=" + address,
				"--kube-api-qps=50", "--kube-api-burst=100",
				"--retry-interval-max=10s", // of itself minutes
			}, sidecar[1:]...),
			Ready: healthy("http://" + address + "/metrics"),
		})
	}
	return all
}

// storageNode is the driver's part on a node.
func (o Options) storageNode(i int) node.Component {
	plugins := filepath.Join(kubeletFolder, "plugins", csi.Name)
	return node.Component{
		Name: CSI,
		Args: []string{
			o.bin("csi-driver"), "-node=" + nodeName(i), "-dir=" + o.storage(),
			"-endpoint=" + filepath.Join(plugins, "csi.sock"), "-registry=" + filepath.Join(kubeletFolder, "plugins_registry"),
		},
		Ready: listens(o.path(nodeName(i), "kubelet", "plugins", csi.Name, "csi.sock")),
	}
}

// listens is a component's Ready that connects to its socket, at a path of the machine's.
func listens(socket string) func(context.Context, *node.Node) error {
	return func(ctx context.Context, _ *node.Node) error {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}

// awaitStorage waits until a node's kubelet has the driver.
func (c *Cluster) awaitStorage(ctx context.Context, name string) error {
	return c.WaitFor(ctx, "csinode/"+name, "jsonpath={.spec.drivers[0].name}="+csi.Name)
}

// VolumeFile returns the file, on the machine, that has the bytes of the volume of a PVC that the cluster provides.
func (c *Cluster) VolumeFile(ctx context.Context, pvc string) (string, error) {
	volume, err := c.Kubectl(ctx, "get", "pvc", pvc, "-o", "jsonpath={.spec.volumeName}")
	if err != nil {
		return "", err
	}
	id, err := c.Kubectl(ctx, "get", "pv", strings.TrimSpace(volume), "-o", "jsonpath={.spec.csi.volumeHandle}")
	if err != nil {
		return "", err
	}
	return csi.File(c.o.storage(), strings.TrimSpace(id)), nil
}

// held are the loop devices by which a node's kubelet holds the block devices of pods. They would outlive
// its machine.
func (o Options) held(name string) ([]loopdev.Device, error) {
	all, err := loopdev.All()
	if err != nil {
		return nil, err
	}
	var its []loopdev.Device
	for _, d := range all {
		inside, ok := strings.CutPrefix(d.File, kubeletFolder)
		if !ok {
			continue
		}
		// All kubelets have the same folder. A pod is in one of them.
		if _, err := os.Lstat(o.path(name, "kubelet", inside)); err == nil {
			its = append(its, d)
		} else if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
			return nil, err
		}
	}
	return its, nil
}
