package export

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nodevirt/nodevirt/controller/export/server"
)

// portName is the name of the pod's and the Service's port. virtctl asks for port 443.
const (
	portName    = "export"
	servicePort = 443
)

// service returns the name of the export's Service, and creates it if it does not exist.
func (r *Reconciler) service(ctx context.Context, w *work) (string, error) {
	name := serviceName(w.e)
	have := new(corev1.Service)
	err := r.live.Get(ctx, w.key(name), have)
	switch {
	case err == nil && !metav1.IsControlledBy(have, w.e):
		return "", fmt.Errorf("service %s exists and is not the export's: delete it, or choose another name for the export", name)
	case err == nil:
		return name, nil
	case !apierrors.IsNotFound(err):
		return "", fmt.Errorf("read service %s: %w", name, err)
	}
	made := &corev1.Service{ObjectMeta: w.meta(name), Spec: corev1.ServiceSpec{
		Selector: selector(w.e),
		Ports:    []corev1.ServicePort{{Name: portName, Protocol: corev1.ProtocolTCP, Port: servicePort, TargetPort: intstr.FromInt32(server.Port)}},
	}}
	made.Labels, made.Annotations = labels(w.e), given(w.e.Annotations)
	if err := r.live.Create(ctx, made); err != nil {
		return "", fmt.Errorf("create service %s: %w", name, err)
	}
	r.event(w, corev1.EventTypeNormal, "ServiceCreated", "Created service %s/%s", made.Namespace, name)
	return name, nil
}
