package datavolume

import (
	"context"
	"errors"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdi "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// DeniedError says that a service account may not copy what a DataVolume names.
type DeniedError struct {
	// Account is namespace/name of the service account, Reason CDI's sentence.
	Account, Reason string
}

func (e *DeniedError) Error() string {
	return fmt.Sprintf("%s: let the service account %s create datavolumes/source there", e.Reason, e.Account)
}

// authorize asks whether a service account of the DataVolume's namespace may copy its source, by the
// rules of CDI.
func (c *Client) authorize(ctx context.Context, dv *cdi.DataVolume, account string) error {
	asked := dv.DeepCopy()
	// With these CDI needs no permission, as it copies nothing; but it does if it finds no volume.
	delete(asked.Annotations, cdi.AnnPrePopulated)
	delete(asked.Annotations, cdi.AnnCheckStaticVolume)
	answer, err := asked.AuthorizeSA(asked.Namespace, asked.Name, &reviews{ctx, c}, asked.Namespace, account)
	if err != nil && !errors.Is(err, cdi.ErrNoTokenOkay) { // which it returns if nothing is copied
		return fmt.Errorf("ask whether DataVolume %s/%s may copy its source: %w", dv.Namespace, dv.Name, err)
	}
	if !answer.Allowed {
		return &DeniedError{Account: dv.Namespace + "/" + account, Reason: answer.Reason}
	}
	return nil
}

// reviews is what CDI's rules ask the API server, within one context.
type reviews struct {
	ctx context.Context //nolint:containedctx // CDI's interface has none
	c   *Client
}

// CreateSar asks what a user may.
func (r *reviews) CreateSar(review *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error) {
	return r.c.cluster.AuthorizationV1().SubjectAccessReviews().Create(r.ctx, review, metav1.CreateOptions{})
}

// GetNamespace reads the namespace of a source.
func (r *reviews) GetNamespace(name string) (*corev1.Namespace, error) {
	return r.c.cluster.CoreV1().Namespaces().Get(r.ctx, name, metav1.GetOptions{})
}

// GetDataSource reads a DataSource.
func (r *reviews) GetDataSource(namespace, name string) (*cdi.DataSource, error) {
	return r.c.dataSource(r.ctx, namespace, name)
}
