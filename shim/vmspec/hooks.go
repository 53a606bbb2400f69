package vmspec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// AnnotationHooks lists the hook sidecars of a VM, as KubeVirt does: a JSON list of
	// [HookSidecar].
	AnnotationHooks = "hooks.kubevirt.io/hookSidecars"
	// HooksPath is where the sidecars, each in a folder of its name, and the VM's container
	// mount the volume with the sidecars' sockets.
	HooksPath = "/var/run/kubevirt-hooks"
	// maxHooks bounds the sidecars of a VM. Each one can delay a start.
	maxHooks = 8
)

// HookSidecar is a container that changes a VM before its start.
type HookSidecar struct {
	// Image is empty for the cluster's default.
	Image           string            `json:"image,omitempty"`
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`
	Command         []string          `json:"command,omitempty"`
	Args            []string          `json:"args,omitempty"`
	ConfigMap       *HookConfigMap    `json:"configMap,omitempty"`
	PVC             *HookPVC          `json:"pvc,omitempty"`
}

// HookConfigMap is a key of a ConfigMap that the sidecar has as a program.
type HookConfigMap struct {
	Name     string `json:"name"`
	Key      string `json:"key"`
	HookPath string `json:"hookPath"`
}

// HookPVC is a PVC that the sidecar mounts.
type HookPVC struct {
	Name       string `json:"name"`
	VolumePath string `json:"volumePath"`
	// SharedComputePath is refused: the VM's container has no files.
	SharedComputePath string `json:"sharedComputePath,omitempty"`
}

// HookName returns the name of the container of a sidecar, and of the folder of its
// socket. Sidecars count from 0.
func HookName(n int) string { return "hook-sidecar-" + strconv.Itoa(n) }

// HookSidecars returns the sidecars that an object's annotation lists.
func HookSidecars(annotations map[string]string) ([]HookSidecar, error) {
	text, given := annotations[AnnotationHooks]
	if !given {
		return nil, nil
	}
	var all []HookSidecar
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.DisallowUnknownFields()
	if err := d.Decode(&all); err != nil {
		return nil, fmt.Errorf("%s: not a JSON list of sidecars: %w", AnnotationHooks, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: text follows the JSON list; remove it", AnnotationHooks)
	}
	if len(all) > maxHooks {
		return nil, fmt.Errorf("%s: %d sidecars; at most %d are allowed", AnnotationHooks, len(all), maxHooks)
	}
	var errs []error
	for i, s := range all {
		if err := s.check(); err != nil {
			errs = append(errs, fmt.Errorf("%s: [%d].%w", AnnotationHooks, i, err))
		}
	}
	return all, errors.Join(errs...)
}

func (s HookSidecar) check() error {
	policies := []corev1.PullPolicy{"", corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever}
	if !slices.Contains(policies, s.ImagePullPolicy) {
		return fmt.Errorf("imagePullPolicy: %q is none of Always, IfNotPresent and Never", excerpt(string(s.ImagePullPolicy)))
	}
	if c := s.ConfigMap; c != nil {
		switch {
		case len(validation.IsDNS1123Subdomain(c.Name)) > 0:
			return fmt.Errorf("configMap.name: %q is not a ConfigMap's name", excerpt(c.Name))
		case len(validation.IsConfigMapKey(c.Key)) > 0:
			return fmt.Errorf("configMap.key: %q is not a key of a ConfigMap", excerpt(c.Key))
		case !mountable(c.HookPath):
			return fmt.Errorf("configMap.hookPath: %q is not a path such as /usr/bin/onDefineDomain", excerpt(c.HookPath))
		}
	}
	if c := s.PVC; c != nil {
		switch {
		case len(validation.IsDNS1123Subdomain(c.Name)) > 0:
			return fmt.Errorf("pvc.name: %q is not a PVC's name", excerpt(c.Name))
		case !mountable(c.VolumePath):
			return fmt.Errorf("pvc.volumePath: %q is not a path such as /data", excerpt(c.VolumePath))
		case c.SharedComputePath != "":
			return errors.New("pvc.sharedComputePath: not supported: the container of the VM runs no program; remove it")
		}
	}
	return nil
}

// mountable reports whether a container can have a mount at a path, beside its sockets.
func mountable(at string) bool {
	return path.IsAbs(at) && path.Clean(at) == at && at != "/" && !strings.Contains(at, ":") && printable(at) &&
		!strings.HasPrefix(at+"/", HooksPath+"/")
}

// Hooks are the hook sidecars of a VM, as its node finds them.
type Hooks struct {
	// Folder is that of the sockets, on the node. It has one folder for each sidecar.
	Folder string `json:"folder"`
	// Sidecars is the number of sidecars.
	Sidecars int `json:"sidecars"`
}

// emptyDir matches the kubelet's folders of emptyDir volumes.
var emptyDir = regexp.MustCompile(`^/.+/volumes/kubernetes\.io~empty-dir/[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// readHooks returns the hooks of a VM, nil for one without sidecars.
func readHooks(pod *runtimeapi.PodSandboxConfig, c *runtimeapi.ContainerConfig) (*Hooks, error) {
	all, err := HookSidecars(pod.GetAnnotations())
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(c.GetMounts(), func(m *runtimeapi.Mount) bool { return m.GetContainerPath() == HooksPath })
	switch {
	case len(all) == 0 && at < 0:
		return nil, nil
	case len(all) == 0:
		return nil, fmt.Errorf("container %s: volume mounted at %s: annotation %s lists no sidecar; add one, or remove the volume",
			excerpt(c.GetMetadata().GetName()), HooksPath, AnnotationHooks)
	case at < 0:
		return nil, fmt.Errorf("%s: mount an emptyDir with the sidecars' sockets at %s, or remove the annotation", AnnotationHooks, HooksPath)
	}
	folder := c.GetMounts()[at].GetHostPath()
	if path.Clean(folder) != folder || !printable(folder) || !emptyDir.MatchString(folder) {
		return nil, fmt.Errorf("container %s: volume mounted at %s: not an emptyDir; use one", excerpt(c.GetMetadata().GetName()), HooksPath)
	}
	return &Hooks{Folder: folder, Sidecars: len(all)}, nil
}
