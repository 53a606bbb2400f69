//go:build cluster

package devices

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	metadata "k8s.io/dynamic-resource-allocation/api/metadata/v1beta1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

// driverName is the DRA driver's, and driverKind the kind of its CDI devices.
const (
	driverName = "dra.example.com"
	driverKind = driverName + "/device"
)

// busAttribute is Kubernetes' name of the attribute with a PCI address.
const busAttribute = "resource.kubernetes.io/pciBusID"

// driver is a DRA driver. It makes a CDI device for each ResourceClaim.
type driver struct {
	node    string
	devices map[string]device
}

// serve publishes the devices, and serves the kubelet until ctx is done.
func (d driver) serve(ctx context.Context, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	const folder = kubeletplugin.KubeletPluginsDir + "/" + driverName
	for _, dir := range []string{folder, kubeletplugin.DefaultCDIDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	helper, err := kubeletplugin.Start(ctx, d,
		kubeletplugin.DriverName(driverName), kubeletplugin.NodeName(d.node), kubeletplugin.KubeClient(client),
		kubeletplugin.PluginDataDirectoryPath(folder), kubeletplugin.HealthService(false),
		kubeletplugin.EnableDeviceMetadata(true, []schema.GroupVersion{metadata.SchemeGroupVersion}))
	if err != nil {
		return err
	}
	defer helper.Stop()
	var slice resourceslice.Slice
	for _, one := range d.devices {
		slice.Devices = append(slice.Devices, resourceapi.Device{Name: one.name, Attributes: one.attributes()})
	}
	err = helper.PublishResources(ctx, resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{
		d.node: {Slices: []resourceslice.Slice{slice}},
	}})
	if err != nil {
		return fmt.Errorf("publish devices: %w", err)
	}
	<-ctx.Done()
	return nil
}

// attributes are those of the ResourceSlice, which are in the VM's metadata, too.
func (d device) attributes() map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
	return map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{busAttribute: {StringValue: &d.address}}
}

// PrepareResourceClaims implements the library's.
func (d driver) PrepareResourceClaims(_ context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	all := map[types.UID]kubeletplugin.PrepareResult{}
	for _, c := range claims {
		var result kubeletplugin.PrepareResult
		for _, r := range c.Status.Allocation.Devices.Results {
			one, known := d.devices[r.Device]
			if !known {
				return nil, fmt.Errorf("ResourceClaim %s has the unknown device %s", c.Name, r.Device)
			}
			name := string(c.UID) + "-" + one.name
			if err := writeCDI(driverKind, name, map[string]any{"deviceNodes": []any{map[string]any{"path": one.node()}}}); err != nil {
				return nil, err
			}
			has := map[string]resourceapi.DeviceAttribute{busAttribute: {StringValue: &one.address}}
			result.Devices = append(result.Devices, kubeletplugin.Device{
				Requests: []string{r.Request}, PoolName: r.Pool, DeviceName: r.Device,
				CDIDeviceIDs: []string{driverKind + "=" + name}, Metadata: &kubeletplugin.DeviceMetadata{Attributes: has},
			})
		}
		all[c.UID] = result
	}
	return all, nil
}

// UnprepareResourceClaims implements the library's.
func (d driver) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	all := map[types.UID]error{}
	for _, c := range claims {
		all[c.UID] = nil
		for name := range d.devices {
			if err := os.Remove(cdiFile("/var/run/cdi", string(c.UID)+"-"+name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				all[c.UID] = err
			}
		}
	}
	return all, nil
}

// HandleError implements the library's.
func (driver) HandleError(_ context.Context, err error, msg string) {
	fmt.Fprintf(os.Stderr, "DRA driver: %s: %v\n", msg, err)
}

// WatchHealthStatus implements the library's.
func (driver) WatchHealthStatus(context.Context, chan<- kubeletplugin.DeviceHealthReport) error {
	return kubeletplugin.ErrHealthNotSupported
}
