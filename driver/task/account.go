// SPDX-License-Identifier: MPL-2.0

package task

import (
	"fmt"
	"os/user"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/shared/screen"
)

// AccountPolicy is which users a screen may run as (X29).
type AccountPolicy struct {
	// MinUID is the lowest uid and gid a job may name; below are the system's.
	MinUID uint32
	// AllowedUsers are the only users a job may name; empty allows all that may be.
	AllowedUsers []string
	// AllowedGroups may be supplementary groups of a screen, by name.
	AllowedGroups []string
	// DeniedGroups are never a screen's group, whatever the job says: whoever is in an
	// engine's group owns the node.
	DeniedGroups []string
}

// dynamicUser is Nomad's form for a dynamic workload user: uid and gid are the number
// and no passwd entry exists.
var dynamicUser = regexp.MustCompile(`^nomad-([0-9]{1,10})$`)

// maxID is the highest id the kernel lets a process have; 2^32-1 means "no change".
const maxID = 1<<32 - 2

// Resolve turns a job's `user` into numbers, once. The error is a screen.Faults.
func (p AccountPolicy) Resolve(name string) (isolation.Account, error) {
	if login, _, _ := strings.Cut(name, ":"); len(p.AllowedUsers) > 0 && !slices.Contains(p.AllowedUsers, login) {
		return isolation.Account{}, screen.Faults{{Field: "user", Value: name, Want: "is not among this node's allowed_users"}}
	}
	uid, gid, err := lookUp(name)
	if err != nil {
		return isolation.Account{}, screen.Faults{{Field: "user", Value: name, Want: err.Error()}}
	}
	account := isolation.Account{UID: uid, GID: gid, Name: accountName(name, uid)}
	if reason := p.refusal(account); reason != "" {
		return isolation.Account{}, screen.Faults{{Field: "user", Value: name, Want: reason}}
	}
	account.Groups = p.supplementary(name)
	return account, nil
}

func (p AccountPolicy) refusal(a isolation.Account) string {
	switch {
	case a.UID == 0 || a.GID == 0:
		return "is root: a desktop never runs as root; name another user or none"
	case a.UID < p.MinUID || a.GID < p.MinUID:
		return fmt.Sprintf("has uid %d and gid %d; the lowest a screen may have is min_uid = %d", a.UID, a.GID, p.MinUID)
	case slices.ContainsFunc(p.DeniedGroups, func(name string) bool { return gidOf(name) == a.GID }):
		return "has the group of a container engine, which is as good as root"
	}
	return ""
}

// lookUp understands "1000", "1000:44", "name", "name:group" and "nomad-80001".
func lookUp(text string) (uid, gid uint32, err error) {
	if m := dynamicUser.FindStringSubmatch(text); m != nil {
		id, err := parseID(m[1])
		return id, id, err
	}
	name, group, hasGroup := strings.Cut(text, ":")
	if uid, gid, err = lookUpUser(name); err != nil {
		return 0, 0, err
	}
	if !hasGroup {
		return uid, gid, nil
	}
	if id, err := parseID(group); err == nil {
		return uid, id, nil
	}
	found, err := user.LookupGroup(group)
	if err != nil {
		return 0, 0, fmt.Errorf("names a group this node does not know")
	}
	gid, err = parseID(found.Gid)
	return uid, gid, err
}

// lookUpUser takes a bare number as uid and, without an entry, as gid too.
func lookUpUser(name string) (uid, gid uint32, err error) {
	id, numeric := parseID(name)
	var entry *user.User
	if numeric == nil {
		entry, err = user.LookupId(name)
		if err != nil {
			return id, id, nil
		}
	} else if entry, err = user.Lookup(name); err != nil {
		return 0, 0, fmt.Errorf("is not a user of this node")
	}
	if uid, err = parseID(entry.Uid); err != nil {
		return 0, 0, err
	}
	gid, err = parseID(entry.Gid)
	return uid, gid, err
}

// parseID reads a decimal id without sign or white space, so that "+0" and "0 " are no
// disguise of 0.
func parseID(text string) (uint32, error) {
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, fmt.Errorf("is not a user of this node")
		}
	}
	id, err := strconv.ParseUint(text, 10, 32)
	if err != nil || id > maxID {
		return 0, fmt.Errorf("is not a user of this node")
	}
	return uint32(id), nil
}

func gidOf(group string) uint32 {
	found, err := user.LookupGroup(group)
	if err != nil {
		return maxID + 1 // nobody's
	}
	id, err := parseID(found.Gid)
	if err != nil {
		return maxID + 1
	}
	return id
}

// supplementary are the user's groups that the operator allows, sorted as the kernel
// keeps them.
func (p AccountPolicy) supplementary(name string) []uint32 {
	if len(p.AllowedGroups) == 0 {
		return nil
	}
	login, _, _ := strings.Cut(name, ":")
	entry, err := user.Lookup(login)
	if err != nil {
		return nil
	}
	ids, err := entry.GroupIds()
	if err != nil {
		return nil
	}
	var groups []uint32
	for _, allowed := range p.AllowedGroups {
		gid := gidOf(allowed)
		if slices.Contains(ids, strconv.FormatUint(uint64(gid), 10)) && p.refusal(isolation.Account{UID: p.MinUID, GID: gid}) == "" {
			groups = append(groups, gid)
		}
	}
	slices.Sort(groups)
	return groups
}

// accountName is what the account is called inside: a login name where the job gave
// one, else one made of the number.
func accountName(name string, uid uint32) string {
	login, _, _ := strings.Cut(name, ":")
	if _, err := parseID(login); err == nil || login == "" {
		return fmt.Sprintf("botscreen-%d", uid)
	}
	return login
}
