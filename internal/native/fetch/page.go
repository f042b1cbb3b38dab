package fetch

import (
	"bytes"
	"io"
	"net/url"
	"strings"

	htmltomarkdown "github.com/JohannesKaufmann/html-to-markdown/v2/converter"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/base"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/commonmark"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/table"
	"golang.org/x/net/html"
	"golang.org/x/net/html/charset"

	readability "codeberg.org/readeck/go-readability"
)

// unreadable stands for a page in which no text can be found.
const unreadable = "<error>Page failed to be simplified from HTML</error>"

// text decodes the body by what the header, the page itself or its bytes say
// of its encoding.
func (r *response) text() string {
	decoded, err := charset.NewReader(bytes.NewReader(r.body), r.contentType)
	if err == nil {
		if b, err := io.ReadAll(decoded); err == nil {
			return strings.ToValidUTF8(string(b), "�")
		}
	}
	return strings.ToValidUTF8(string(r.body), "�")
}

func (r *response) isHTML(text string) bool {
	return r.contentType == "" || strings.Contains(r.contentType, "text/html") || strings.Contains(text[:min(len(text), 100)], "<html")
}

// markdown finds the main content of a page and writes it as Markdown. Links
// become absolute.
func markdown(page string, at *url.URL) string {
	doc, err := html.Parse(strings.NewReader(page))
	if err != nil {
		return unreadable // nested deeper than any real page
	}
	parser := readability.NewParser()
	article, err := parser.ParseAndMutate(doc, at)
	if err != nil || article.Node == nil {
		return unreadable
	}
	conv := htmltomarkdown.NewConverter(htmltomarkdown.WithPlugins(
		base.NewBasePlugin(),
		commonmark.NewCommonmarkPlugin(),
		table.NewTablePlugin(),
	))
	md, err := conv.ConvertNode(article.Node)
	if err != nil || len(bytes.TrimSpace(md)) == 0 {
		return unreadable
	}
	return string(md)
}
