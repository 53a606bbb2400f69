package export

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/certs"
	"github.com/nodevirt/nodevirt/controller/export/server"
)

// launch creates the export's pod and the Secret that it mounts. The pod is first, so that it owns
// the Secret: Kubernetes removes both together. A gate keeps the pod from nodes until then.
func (r *Reconciler) launch(ctx context.Context, w *work, s *source) (*corev1.Pod, error) {
	if r.image == "" {
		return nil, errors.New("the controller does not know its own image; " +
			"have the cluster's administrator set -export-image of nodevirt-controller")
	}
	if s.spec != nil {
		w.outside, _ = r.ingresses.outside(ctx, w) // without, there are no manifests for clients outside
	}
	authority, files, err := r.files(ctx, w, s)
	if err != nil {
		return nil, err
	}
	if err := r.token(ctx, w); err != nil {
		return nil, err
	}
	const random = 10
	secret := &corev1.Secret{Data: files}
	secret.Namespace, secret.Name = w.e.Namespace, podName(w.e)+"-"+utilrand.String(random)
	p := r.render(w, s, secret.Name)
	p.Annotations[annotationAuthority], p.Annotations[annotationConfig] = authority, string(files[server.FileConfig])
	if err := r.client.Create(ctx, p); err != nil {
		return nil, fmt.Errorf("create pod %s: %w", p.Name, err)
	}
	r.event(w, corev1.EventTypeNormal, "ExporterPodCreated", "Created exporter pod %s/%s", p.Namespace, p.Name)
	yes := true
	// Without blockOwnerDeletion, which would need a right on the finalizers of pods.
	secret.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID, Controller: &yes}}
	if err := r.live.Create(ctx, secret); err != nil {
		return nil, fmt.Errorf("create secret %s: %w", secret.Name, err)
	}
	before := p.DeepCopy()
	p.Spec.SchedulingGates = nil
	if err := r.client.Patch(ctx, p, client.MergeFrom(before)); err != nil {
		return nil, fmt.Errorf("release pod %s: %w", p.Name, err)
	}
	return p, nil
}

// files returns what the pod's server reads, with a new certificate, and the authority's
// certificate.
func (r *Reconciler) files(ctx context.Context, w *work, s *source) (authority string, files map[string][]byte, err error) {
	service := w.e.Status.ServiceName
	host := service + "." + w.e.Namespace
	ca, cert, key, err := certs.ForServer([]string{host + ".svc", host + ".svc.cluster.local", host, service}, r.now(), w.expires)
	if err != nil {
		return "", nil, err
	}
	authority = strings.TrimSpace(string(ca))
	files = map[string][]byte{server.FileCertificate: cert, server.FileKey: key}
	if files[server.FileConfig], err = json.Marshal(config(w, s)); err != nil {
		return "", nil, fmt.Errorf("encode the server's config: %w", err)
	}
	if s.spec != nil {
		if files[server.FileManifests], err = r.manifests(ctx, w, s, internalBase(w), authority); err != nil {
			return "", nil, err
		}
		if x := w.outside; x != nil {
			if files[server.FileExternalManifests], err = r.manifests(ctx, w, s, x.base(w.e), x.authority); err != nil {
				return "", nil, err
			}
		}
	}
	return authority, files, nil
}

// token puts the name of the Secret with the token into the status. If the user names none, it
// creates one: it can read neither, and leaves one that exists as it is.
func (r *Reconciler) token(ctx context.Context, w *work) error {
	if ref := w.e.Spec.TokenSecretRef; ref != nil && *ref != "" {
		w.e.Status.TokenSecretRef = ref
		return nil
	}
	name := fit(prefixToken+w.e.Name, maxName)
	secret := &corev1.Secret{ObjectMeta: w.meta(name), Data: map[string][]byte{server.FileToken: []byte(rand.Text())}}
	err := r.live.Create(ctx, secret)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create secret %s: %w", name, err)
	}
	if err == nil {
		r.event(w, corev1.EventTypeNormal, "SecretCreated", "Created default secret %s/%s", secret.Namespace, name)
	}
	w.e.Status.TokenSecretRef = &name
	return nil
}
