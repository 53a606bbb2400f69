package admission

import (
	"context"
	"errors"
	"fmt"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/internal/bounds"
)

// pageSize is how many objects of a namespace a review reads at a time: authors decide how many there are, and each may
// have half a MiB.
const pageSize = 16

// ErrTooMany says that a namespace has more objects of a kind than a review reads.
var ErrTooMany = errors.New("too many objects in the namespace")

// Pages lists the objects of a namespace page by page, until look returns true or an error. Empty returns an empty list.
// The error is [ErrTooMany] if look has not ended the list after [bounds.Others] objects.
func Pages[L client.ObjectList](
	ctx context.Context, live client.Reader, namespace string, empty func() L, look func(L) (done bool, err error),
) error {
	seen := 0
	for next := ""; ; {
		if seen >= bounds.Others {
			return fmt.Errorf("%w: more than %d: delete those that have ended", ErrTooMany, bounds.Others)
		}
		page := empty()
		if err := live.List(ctx, page, client.InNamespace(namespace), client.Limit(pageSize), client.Continue(next)); err != nil {
			return err
		}
		if done, err := look(page); done || err != nil {
			return err
		}
		seen += max(1, apimeta.LenList(page))
		if next = page.GetContinue(); next == "" {
			return nil
		}
	}
}
