// SPDX-License-Identifier: MPL-2.0

package httpapi

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/botscreen/botscreen/shared/devagent/state"
)

// How long a blocking query waits.
const (
	defaultWait = 5 * time.Minute
	maxWait     = 10 * time.Minute
)

// query reads the state for a request: the index that the answer is of, and the
// answer.
type query func(v *state.View) (index uint64, out any, err error)

// read answers from the state. With an index in the request it waits until the
// answer is of a newer one, or for the time that the request allows.
func (a *API) read(w http.ResponseWriter, r *http.Request, q query) (any, error) {
	after, wait, err := waiting(r)
	if err != nil {
		return nil, err
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		changed := a.Store.Changed()
		var index uint64
		var out any
		a.Store.Read(func(v *state.View) { index, out, err = q(v) })
		done := after == 0 || index > after
		if !done {
			select {
			case <-changed:
				continue
			case <-timer.C:
			case <-r.Context().Done():
			}
		}
		setIndex(w, max(index, 1))
		w.Header().Set("X-Nomad-KnownLeader", "true")
		w.Header().Set("X-Nomad-LastContact", "0")
		return out, err
	}
}

func waiting(r *http.Request) (after uint64, wait time.Duration, err error) {
	q := r.URL.Query()
	wait = defaultWait
	if text := q.Get("index"); text != "" {
		if after, err = strconv.ParseUint(text, 10, 64); err != nil {
			return 0, 0, refuse(http.StatusBadRequest, "Invalid index")
		}
	}
	if text := q.Get("wait"); text != "" {
		if wait, err = time.ParseDuration(text); err != nil {
			return 0, 0, refuse(http.StatusBadRequest, "Invalid wait time")
		}
	}
	return after, min(wait, maxWait), nil
}

// page cuts a list to what the request asks for: order, filter and page. key names
// an element.
func page[T any](w http.ResponseWriter, r *http.Request, all []T, key func(T) string) ([]T, error) {
	q := r.URL.Query()
	if q.Get("filter") != "" {
		return nil, refuse(http.StatusBadRequest, "failed to read filter expression: the embedded agent does not evaluate filters")
	}
	if reverse, err := flag(r, "reverse"); err != nil {
		return nil, err
	} else if reverse {
		all = slices.Clone(all)
		slices.Reverse(all)
	}
	if from := q.Get("next_token"); from != "" {
		i := slices.IndexFunc(all, func(one T) bool { return key(one) == from })
		if i < 0 {
			return nil, refuse(http.StatusBadRequest, "invalid next_token")
		}
		all = all[i:]
	}
	size := 0
	if text := q.Get("per_page"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return nil, refuse(http.StatusBadRequest, "Invalid per_page")
		}
		size = n
	}
	if size > 0 && len(all) > size {
		w.Header().Set("X-Nomad-NextToken", key(all[size]))
		all = all[:size]
	}
	return all, nil
}
