//go:build cluster

package devices

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/nodevirt/nodevirt/test/cluster"
	"github.com/nodevirt/nodevirt/test/cluster/clustertest"
	"github.com/nodevirt/nodevirt/test/guest"
)

type object = map[string]any

// suite is what the tests share. It is set before the first test runs.
var suite struct {
	*cluster.Cluster
	tiny string // image with guest.Tiny as /disk
}

// device is a PCI device of the node, alone in its IOMMU group.
type device struct{ name, address, group string }

// node is the path of the device node that the kubelet hands over.
func (d device) node() string { return vfio + "/" + d.group }

// The devices: those of the plug-in, one with its variable and node and one by CDI, and the DRA driver's.
var (
	pluginGPU = device{"plugin-gpu", "0000:65:00.0", "12"}
	pluginNIC = device{"plugin-nic", "0000:66:00.0", "13"}
	driverGPU = device{"driver-gpu", "0000:67:00.0", "14"}
	driverQAT = device{"driver-qat", "0000:68:00.0", "15"}
)

// The extended resources of the plug-in.
const (
	gpuResource = "example.com/gpu"
	nicResource = "example.com/nic"
)

// vfio is the folder of VFIO's nodes, which only the tests' node has.
const vfio = "/dev/vfio"

// serving says that the process is the device plug-in and the driver, and names the administrator's kubeconfig.
const serving = "NODEVIRT_TEST_DEVICES"

func TestMain(m *testing.M) {
	if kubeconfig := os.Getenv(serving); kubeconfig != "" {
		if err := serve(kubeconfig); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	made := os.Mkdir(vfio, 0o755) == nil // the mount point, of a machine without VFIO
	code := cluster.Main(m, cluster.Options{Nodes: 1}, prepare)
	if made {
		_ = os.Remove(vfio)
	}
	os.Exit(code)
}

// serve runs the device plug-ins and the driver in the node.
func serve(kubeconfig string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error { return plugin{resource: gpuResource, device: pluginGPU}.serve(ctx) })
	all.Go(func() error { return plugin{resource: nicResource, device: pluginNIC, byCDI: true}.serve(ctx) })
	all.Go(func() error {
		return driver{"node-1", map[string]device{driverGPU.name: driverGPU, driverQAT.name: driverQAT}}.serve(ctx, kubeconfig)
	})
	return all.Wait()
}

func prepare(ctx context.Context, c *cluster.Cluster) (err error) {
	suite.Cluster = c
	if suite.tiny, err = clustertest.PushDisk(ctx, c, "tiny:1", guest.Tiny); err != nil {
		return err
	}
	if err := addDevices(ctx); err != nil {
		return err
	}
	if err := c.Deploy(ctx); err != nil {
		return err
	}
	// The object exists once the controller leads.
	if err := c.WaitFor(ctx, "kubevirt/kubevirt", "jsonpath={.status.phase}=Deployed", "--namespace=nodevirt"); err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	server := c.Node("node-1").Command(context.WithoutCancel(ctx), program)
	server.Env = append(server.Env, serving+"="+filepath.Join(c.PKI(), "admin.kubeconfig"))
	server.Stderr = os.Stderr
	return server.Start() // it ends with the node
}

// addDevices shows the node PCI devices that are bound to vfio-pci, with their IOMMU groups and device nodes.
func addDevices(ctx context.Context) error {
	node := suite.Node("node-1")
	root := filepath.Join(node.Dir(), "vfio")
	devices, drivers, groups := filepath.Join(root, "devices"), filepath.Join(root, "drivers"), filepath.Join(root, "groups")
	if err := os.MkdirAll(filepath.Join(drivers, "vfio-pci"), 0o755); err != nil {
		return err
	}
	run := func(args ...string) error {
		_, err := node.Output(ctx, args[0], args[1:]...)
		return err
	}
	if err := run("mount", "-t", "tmpfs", "tmpfs", vfio); err != nil {
		return err
	}
	nodes := []string{"vfio"}
	for _, d := range []device{pluginGPU, pluginNIC, driverGPU, driverQAT} {
		nodes = append(nodes, d.group)
		at := filepath.Join(devices, d.address)
		err := errors.Join(
			os.MkdirAll(at, 0o755), os.Symlink("../../drivers/vfio-pci", filepath.Join(at, "driver")),
			os.Symlink("../../../../kernel/iommu_groups/"+d.group, filepath.Join(at, "iommu_group")),
			os.MkdirAll(filepath.Join(groups, d.group, "devices"), 0o755),
			os.Symlink("../../../../bus/pci/devices/"+d.address, filepath.Join(groups, d.group, "devices", d.address)),
		)
		for name, text := range map[string]string{"vendor": "0x10de\n", "device": "0x1eb8\n", "class": "0x030200\n", "config": strings.Repeat("\x00", 256)} {
			err = errors.Join(err, os.WriteFile(filepath.Join(at, name), []byte(text), 0o644))
		}
		if err != nil {
			return err
		}
	}
	for _, name := range nodes {
		if err := run("mknod", "-m", "0666", filepath.Join(vfio, name), "c", "1", "3"); err != nil { // as /dev/null
			return err
		}
	}
	return errors.Join(
		run("mount", "--bind", devices, "/sys/bus/pci/devices"), run("mount", "--bind", drivers, "/sys/bus/pci/drivers"),
		run("mount", "--bind", groups, "/sys/kernel/iommu_groups"))
}

func encode(value any) (string, error) {
	text, err := json.Marshal(value)
	return string(text), err
}

// resourceVariable is a resource as KubeVirt's device plug-ins write it in variables.
func resourceVariable(resource string) string {
	return strings.NewReplacer("/", "_", ".", "_").Replace(strings.ToUpper(resource))
}
