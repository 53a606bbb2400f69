package controller

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
)

const (
	// container is the controller's container in deploy/kubernetes.
	container = "controller"
	// namespaceFile has the namespace of a container's pod.
	namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
)

// stubImage returns the image of VMs whose volumes have none: that of the options,
// else the controller's own, which a cluster with a controller can pull by
// definition. It returns "" if the controller runs in no pod, as on a developer's
// host: such VMs are then refused.
func stubImage(ctx context.Context, live client.Reader, o Options) (string, error) {
	if o.StubImage != "" {
		return o.StubImage, nil
	}
	return ownImage(ctx, live, o, "-stub-image")
}

// HoldVolumes is the controller's argument to do nothing but hold the volumes of its pod.
const HoldVolumes = "-hold-volumes"

// holder returns the image of attachment pods.
func holder(ctx context.Context, live client.Reader, o Options) (pod.Holder, error) {
	if o.AttachmentImage != "" {
		return pod.Holder{Image: o.AttachmentImage}, nil
	}
	image, err := ownImage(ctx, live, o, "-attachment-image")
	return pod.Holder{Image: image, Args: []string{HoldVolumes}}, err
}

// exportImage returns the image of the pods that serve exports.
func exportImage(ctx context.Context, live client.Reader, o Options) (string, error) {
	if o.ExportImage != "" {
		return o.ExportImage, nil
	}
	return ownImage(ctx, live, o, "-export-image")
}

// ownImage returns the controller's own image, and names the flag to set if it can't be
// found; "" if the controller runs in no pod.
func ownImage(ctx context.Context, live client.Reader, o Options, flag string) (string, error) {
	if o.Pod == "" {
		return "", nil
	}
	namespace, err := o.namespace()
	if err != nil || namespace == "" {
		return "", err
	}
	var own corev1.Pod
	err = live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: o.Pod}, &own)
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("find the controller's own image: pod %s/%s: %w; or set %s", namespace, o.Pod, err, flag)
	}
	i := slices.IndexFunc(own.Spec.Containers, func(c corev1.Container) bool { return c.Name == container })
	if i < 0 {
		return "", fmt.Errorf("find the controller's own image: pod %s/%s has no container %s; set %s",
			namespace, o.Pod, container, flag)
	}
	return own.Spec.Containers[i].Image, nil
}

// namespace returns the namespace of the options, else that of the pod; "" if the
// controller runs in no pod.
func (o Options) namespace() (string, error) {
	if o.Namespace != "" {
		return o.Namespace, nil
	}
	text, err := os.ReadFile(namespaceFile)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the pod's namespace: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}
