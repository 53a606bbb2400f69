package run

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/vms"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// Pull policies.
const (
	pullMissing = "missing"
	pullAlways  = "always"
	pullNever   = "never"
)

// cpuPeriod is the kubelet's, in microseconds.
const cpuPeriod = 100_000

// request holds the configs of the CRI calls.
type request struct {
	name      string
	image     string
	sandbox   *runtimeapi.PodSandboxConfig
	container *runtimeapi.ContainerConfig
	disks     []disk
}

// request translates the flags to CRI configs, and reads the files that the flags name.
func (o options) request(image string) (request, error) {
	switch o.pull {
	case pullMissing, pullAlways, pullNever:
	default:
		return request{}, fmt.Errorf("--pull %q: want missing, always or never", o.pull)
	}
	name := o.name
	if name == "" {
		name = nameFor(image)
	}
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		return request{}, fmt.Errorf("--name %q: %s", name, strings.Join(problems, "; "))
	}
	if problems := validation.IsDNS1123Label(o.namespace); len(problems) > 0 {
		return request{}, fmt.Errorf("--namespace %q: %s", o.namespace, strings.Join(problems, "; "))
	}
	memory, memoryErr := quantity("--memory", o.memory, "512Mi")
	cpus, cpuErr := quantity("--cpus", o.cpus, "2")
	disks, diskErr := readDisks(o.disks)
	annotations, fileErr := o.annotations(disks)
	if err := errors.Join(memoryErr, cpuErr, diskErr, fileErr); err != nil {
		return request{}, err
	}
	id := uuid.NewString()
	labels := map[string]string{
		"io.kubernetes.pod.name":      name,
		"io.kubernetes.pod.namespace": o.namespace,
		"io.kubernetes.pod.uid":       id,
		vms.ManagedBy:                 vms.Manager,
	}
	metadata := &runtimeapi.PodSandboxMetadata{Name: name, Namespace: o.namespace, Uid: id}
	return request{
		name:  name,
		image: image,
		disks: disks,
		sandbox: &runtimeapi.PodSandboxConfig{
			Metadata:     metadata,
			Hostname:     name,
			LogDirectory: filepath.Join(o.logDirectory, vms.LogFolder(metadata)),
			Labels:       labels,
			Annotations:  annotations,
			Linux:        &runtimeapi.LinuxPodSandboxConfig{CgroupParent: path.Join(o.cgroupParent, "pod"+id)},
		},
		container: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: containerName},
			Labels:   labels,
			LogPath:  containerName + "_0.log",
			Linux: &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{
				MemoryLimitInBytes: memory.Value(),
				CpuPeriod:          cpuPeriod,
				CpuQuota:           cpus.MilliValue() * cpuPeriod / 1000,
			}},
		},
	}, nil
}

const containerName = "vm"

// annotations returns the pod's annotations: cloud-init data, the disk mode, and a VMI if the VM needs
// one.
func (o options) annotations(disks []disk) (map[string]string, error) {
	all := map[string]string{vmspec.AnnotationVMContainer: containerName}
	if o.diskMode != "" {
		all[vmspec.AnnotationDiskMode] = o.diskMode
	}
	vmi, err := o.vmi(disks)
	if err != nil {
		return nil, err
	}
	if vmi != "" {
		all[vmspec.AnnotationVMI] = vmi
	}
	for _, f := range []struct{ flag, path, key string }{
		{"--cloud-init", o.userData, vmspec.AnnotationUserData},
		{"--ssh-key", o.sshKeys, vmspec.AnnotationSSHKeys},
	} {
		if f.path == "" {
			continue
		}
		text, err := os.ReadFile(f.path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.flag, err)
		}
		if f.key == vmspec.AnnotationSSHKeys && strings.Contains(string(text), "PRIVATE KEY") {
			return nil, fmt.Errorf("--ssh-key %s: that is a private key: name the public one, %s.pub", f.path, f.path)
		}
		all[f.key] = string(text)
	}
	return all, nil
}

func quantity(flag, text, example string) (resource.Quantity, error) {
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Sign() <= 0 {
		return q, fmt.Errorf("%s %q: want a quantity such as %s", flag, text, example)
	}
	return q, nil
}

// nameFor makes a pod name from an image's name: example.com/disks/debian:12 becomes
// debian-x7k2p.
func nameFor(image string) string {
	label := labelOf(image, containerName)
	const letters = "bcdfghjklmnpqrstvwxz2456789" // as Kubernetes uses for random names, so that they form no words
	tail := make([]byte, 5)
	for i := range tail {
		tail[i] = letters[rand.IntN(len(letters))] //nolint:gosec // a name, not a secret
	}
	return label + "-" + string(tail)
}

// labelOf makes a DNS label from an image's name; if it can't, it returns the
// alternative.
func labelOf(image, other string) string {
	base := path.Base(image)
	base, _, _ = strings.Cut(base, "@")
	base, _, _ = strings.Cut(base, ":")
	label := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(base))
	label = strings.Trim(label[:min(len(label), 40)], "-")
	if label == "" {
		return other
	}
	return label
}
