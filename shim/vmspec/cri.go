package vmspec

import (
	"errors"
	"fmt"
	"runtime"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// FromCRI returns the VM that a container asks for in a CreateContainer request
// of the kubelet or crictl. The caller knows that the container is a VM, by
// [VMContainer] or by a disk in the image. The error lists all problems, each with
// its annotation or its container.
func FromCRI(
	sandbox *runtimeapi.PodSandboxConfig, container *runtimeapi.ContainerConfig,
) (Unresolved, error) {
	w, err := readAnnotations(sandbox.GetAnnotations())
	mounts, mountsErr := readMounts(container)
	hooks, hooksErr := readHooks(sandbox, container)
	kernel, kernelErr := readKernelImage(container)
	if err := errors.Join(checkNetwork(sandbox), err, mountsErr, hooksErr, kernelErr, checkPodFields(sandbox, container)); err != nil {
		return Unresolved{}, err
	}
	r := request{
		container: container.GetMetadata().GetName(),
		image:     container.GetImage().GetUserSpecifiedImage(),
		hostname:  hostname(sandbox),
		instance:  InstanceID(sandbox.GetMetadata()),
		limits:    readLimits(container.GetLinux().GetResources()),
		cpuset:    container.GetLinux().GetResources().GetCpusetCpus(),
		mounts:    &mounts,
		network:   w.network,

		kernelImage: kernel,
	}
	if r.image == "" {
		r.image = container.GetImage().GetImage() // crictl: as it was written
	}
	var spec Spec
	if w.vmi == nil {
		spec, err = plain(w, r)
	} else {
		spec, err = fromVMI(w, r)
	}
	if err == nil {
		err = errors.Join(w.modes.apply(spec.Disks), w.checkMetrics())
	}
	if err == nil {
		err = errors.Join(checkDevices(container, spec), checkVSOCK(container, spec))
	}
	if err == nil {
		spec.State, err = readState(container, spec.State)
	}
	if err == nil {
		err = checkUsed(w.network, spec.Disks)
	}
	if err == nil {
		err = protectRoot(container, spec.Disks)
	}
	if err == nil {
		spec.Disks, err = addImports(spec.Disks, w.imports)
	}
	if err != nil {
		return Unresolved{}, err
	}
	spec.Hooks = hooks
	return Unresolved{spec: spec, plain: w.vmi == nil}, nil
}

// ValidateSandbox checks, at RunPodSandbox, what needs no container: that the
// annotations are well formed and supported, and that a pod with such annotations
// has its own network. A pod without them may hold no VM at all.
func ValidateSandbox(sandbox *runtimeapi.PodSandboxConfig) error {
	err := CheckAnnotations(sandbox.GetAnnotations(), nil)
	if !speaks(sandbox.GetAnnotations()) {
		return err
	}
	return errors.Join(checkNetwork(sandbox), err)
}

// checkNetwork refuses a pod that uses the node's network.
func checkNetwork(sandbox *runtimeapi.PodSandboxConfig) error {
	if namespaces(sandbox).GetNetwork() == runtimeapi.NamespaceMode_NODE {
		return errors.New("a VM needs a separate pod network; remove hostNetwork or runtimeClassName vm")
	}
	return nil
}

// request is what the translation needs beside the annotations.
type request struct {
	container string // its name, for errors
	image     string // as the pod's author wrote it
	hostname  string // a DNS label
	instance  string // cloud-init's instance-id
	limits    limits
	cpuset    string    // the node's processors that the container may use; empty for all
	mounts    *mountsOf // nil where the container is not known yet
	network   map[string]NetworkDisk

	kernelImage string // that is mounted for the kernel; empty for none
}

// ownDisk is the name of the image's disk in a pod that describes no VM.
const ownDisk = "disk"

// plain returns the VM of a pod that describes none: it has the container's limits,
// the disk of its image, a disk for each volume that it mounts, and the pod's
// network.
//
// The seed is a read-only virtio disk, not a CD-ROM: cloud-init finds it by its
// label in both cases, and small guests have no AHCI driver.
func plain(w wishes, r request) (Spec, error) {
	vcpus, cpuErr := r.vcpus()
	memory, memoryErr := r.memory()
	if err := errors.Join(cpuErr, memoryErr); err != nil {
		return Spec{}, err
	}
	spec := Spec{
		CPU:        CPU{Sockets: vcpus, Cores: 1, Threads: 1},
		Memory:     memory,
		Machine:    MachineOf(runtime.GOARCH),
		Firmware:   nativeFirmware(),
		Disks:      []Disk{{Name: ownDisk, Source: SourceImage, Bus: BusVirtio, BootOrder: 1}},
		Interfaces: []Interface{plainInterface(0)},
		RNG:        true,
		Balloon:    true,
		Hostname:   r.hostname,

		Architecture: architecture(runtime.GOARCH),
	}
	taken := map[string]bool{ownDisk: true, seedDisk().Name: w.seeded}
	for _, m := range *r.mounts {
		if m.files != "" {
			return Spec{}, fmt.Errorf("container %s: volume mounted at %s: %w", r.container, excerpt(m.at), errVolume)
		}
		if m.readOnly {
			return Spec{}, fmt.Errorf("container %s: %s: %w", excerpt(r.container), m.what(), errReadOnly)
		}
		if taken[m.name] {
			return Spec{}, fmt.Errorf("container %s: volume mounted at %s: the VM has a disk of the name %q already; "+
				"mount it elsewhere", excerpt(r.container), excerpt(m.at), m.name)
		}
		spec.Disks = append(spec.Disks, m.disk())
	}
	var err error
	if spec.Disks, err = applyOrigins(spec.Disks, w.origins); err != nil {
		return Spec{}, err
	}
	if err := w.onVolumes(spec.Disks); err != nil {
		return Spec{}, err
	}
	if !w.seeded {
		return spec, nil
	}
	spec.Disks = append(spec.Disks, seedDisk())
	seed, err := w.seed(r.instance, spec.Hostname)
	spec.Seed = seed
	return spec, err
}

func seedDisk() Disk {
	return Disk{Name: "cloudinit", Source: SourceSeed, Bus: BusVirtio, ReadOnly: true}
}
