package vmspec

import (
	"errors"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// FromCRI returns the machine that a container asks for, out of what the
// kubelet or crictl handed over with CreateContainer. It believes the caller
// that the container is a VM's ([VMContainer], or a disk in its image). Its
// error names every problem it could find, each with its annotation or its
// container.
func FromCRI(
	sandbox *runtimeapi.PodSandboxConfig, container *runtimeapi.ContainerConfig,
) (Spec, error) {
	w, err := readAnnotations(sandbox.GetAnnotations())
	mounts, mountsErr := readMounts(container)
	if err := errors.Join(checkNetwork(sandbox), err, mountsErr, checkContainer(container)); err != nil {
		return Spec{}, err
	}
	r := request{
		container: container.GetMetadata().GetName(),
		image:     container.GetImage().GetUserSpecifiedImage(),
		hostname:  hostname(sandbox),
		instance:  instanceID(sandbox.GetMetadata()),
		limits:    readLimits(container.GetLinux().GetResources()),
		mounts:    &mounts,
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
		err = w.modes.apply(spec.Disks)
	}
	if err == nil {
		spec.Disks, err = addImports(spec.Disks, w.imports)
	}
	return spec, err
}

// ValidateSandbox checks at RunPodSandbox what doesn't need a container: that
// the annotations are well formed and within the supported part, and that a pod
// which has any has a network of its own. One without may do without a VM.
func ValidateSandbox(sandbox *runtimeapi.PodSandboxConfig) error {
	err := CheckAnnotations(sandbox.GetAnnotations(), nil)
	if !speaks(sandbox.GetAnnotations()) {
		return err
	}
	return errors.Join(checkNetwork(sandbox), err)
}

// checkNetwork refuses a pod that uses the node's network.
func checkNetwork(sandbox *runtimeapi.PodSandboxConfig) error {
	options := sandbox.GetLinux().GetSecurityContext().GetNamespaceOptions()
	if options.GetNetwork() == runtimeapi.NamespaceMode_NODE {
		return errors.New("a VM needs a pod network of its own; remove hostNetwork or runtimeClassName vm")
	}
	return nil
}

// request is what a machine's translation needs beside the annotations.
type request struct {
	container string // its name, for errors
	image     string // as the pod's author wrote it
	hostname  string // a DNS label
	instance  string // cloud-init's instance-id
	limits    limits
	mounts    *mountsOf // nil where the container is not known yet
}

// ownDisk is what the disk of the container's image is called where nobody names it.
const ownDisk = "disk"

// HasVMI tells whether a pod describes its machine. One that doesn't leaves it to
// its disks what they are.
func HasVMI(annotations map[string]string) bool { return annotations[AnnotationVMI] != "" }

// plain returns the machine of a pod that says nothing of machines: its limits,
// its image's disk and those of the images that it mounts, its network.
//
// The seed is a read-only virtio disk, not a CD-ROM: cloud-init finds it by its
// label either way, and small guests have no AHCI driver.
func plain(w wishes, r request) (Spec, error) {
	vcpus, cpuErr := r.vcpus()
	memory, memoryErr := r.memory()
	if err := errors.Join(cpuErr, memoryErr); err != nil {
		return Spec{}, err
	}
	spec := Spec{
		CPU:        CPU{Sockets: vcpus, Cores: 1, Threads: 1},
		Memory:     memory,
		Machine:    defaultMachine,
		Disks:      []Disk{{Name: ownDisk, Source: SourceImage, Bus: BusVirtio, BootOrder: 1}},
		Interfaces: []Interface{plainInterface(0)},
		RNG:        true,
		Balloon:    true,
		Hostname:   r.hostname,
	}
	taken := map[string]bool{ownDisk: true, seedDisk().Name: w.seeded}
	for _, m := range *r.mounts {
		if m.secret != "" {
			return Spec{}, fmt.Errorf("container %s: volume mounted at %s: %w", r.container, excerpt(m.at), errVolume)
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
