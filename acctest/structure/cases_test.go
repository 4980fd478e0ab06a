// SPDX-License-Identifier: MPL-2.0

package structure

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const casesPage = "docs/cases.md"

var (
	caseName = regexp.MustCompile(`\b(RFB|LSE|SEC|CLI|DSP|MEM|NMD|DOC|APT|BRW|TFM)-([0-9]{2})\b`)
	caseInID = regexp.MustCompile(`^Test(RFB|LSE|SEC|CLI|DSP|MEM|NMD|DOC|APT|BRW|TFM)([0-9]{2})`)
	caseRow  = regexp.MustCompile(`(?m)^\| ((?:RFB|LSE|SEC|CLI|DSP|MEM|NMD|DOC|APT|BRW|TFM)-[0-9]{2}) \|.*\|([^|]*)\|$`)
)

// The page of cases names for each some of the tests that say so of themselves, and every
// case has one. With UPDATE=1 in the environment it is written anew and names all.
func TestCasesHaveTests(t *testing.T) {
	page := filepath.Join(root(t), casesPage)
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	found := testsOfCases(t)
	stale := false
	written := caseRow.ReplaceAllStringFunc(string(text), func(line string) string {
		row := caseRow.FindStringSubmatch(line)
		id, tests := row[1], found[row[1]]
		delete(found, id)
		if len(tests) == 0 {
			t.Errorf("no test says that it is about %s", id)
		}
		for name := range strings.SplitSeq(strings.TrimSpace(row[2]), ", ") {
			stale = stale || !tests[name]
		}
		return strings.TrimSuffix(line, row[2]+"|") + " " + strings.Join(slices.Sorted(maps.Keys(tests)), ", ") + " |"
	})
	for id := range found {
		t.Errorf("%s is in no line of %s", id, casesPage)
	}
	if os.Getenv("UPDATE") == "" {
		if stale {
			t.Errorf("%s names tests that are not there, or none: run UPDATE=1 go test ./acctest/structure", casesPage)
		}
		return
	}
	if err := os.WriteFile(page, []byte(written), 0o644); err != nil {
		t.Fatal(err)
	}
}

// testsOfCases finds the tests whose comment or name mentions a case.
func testsOfCases(t *testing.T) map[string]map[string]bool {
	t.Helper()
	base, found := root(t), map[string]map[string]bool{}
	err := filepath.WalkDir(base, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "node_modules" || d.Name() == ".botscreen") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		dir, _ := filepath.Rel(base, filepath.Dir(path))
		for _, decl := range parsed.Decls {
			test, ok := decl.(*ast.FuncDecl)
			if !ok || !strings.HasPrefix(test.Name.Name, "Test") {
				continue
			}
			for _, id := range casesOf(test) {
				if found[id] == nil {
					found[id] = map[string]bool{}
				}
				found[id]["`"+dir+"` "+test.Name.Name] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func casesOf(test *ast.FuncDecl) []string {
	ids := caseName.FindAllString(test.Doc.Text(), -1)
	if m := caseInID.FindStringSubmatch(test.Name.Name); m != nil {
		ids = append(ids, m[1]+"-"+m[2])
	}
	return ids
}
