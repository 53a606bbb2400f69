// The site's search: pages that have all words of the query, those with a word in their title first. The
// index is loaded with the first query.
(() => {
  "use strict";
  const root = new URL(".", document.currentScript.src);
  const form = document.getElementById("search");
  const results = document.getElementById("results");
  const most = 20;
  const around = 80;
  let loading;

  const load = () => (loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = new URL("search-index.js", root);
    script.onload = () => resolve(window.searchIndex.map((page) => ({
      ...page, lowTitle: page.title.toLowerCase(), lowText: page.text.toLowerCase(),
    })));
    script.onerror = () => { loading = undefined; reject(new Error("the search index cannot be loaded")); };
    document.head.append(script);
  }));

  const find = (pages, words) => pages
    .map((page) => {
      let score = 0;
      for (const word of words) {
        const count = page.lowText.split(word).length - 1;
        if (count === 0) return { score: 0 };
        score += Math.min(count, 10) + (page.lowTitle.includes(word) ? 50 : 0);
      }
      return { page, score };
    })
    .filter((r) => r.score > 0)
    .sort((a, b) => b.score - a.score);

  const show = (found, words) => {
    const list = document.createElement("ol");
    for (const { page } of found.slice(0, most)) {
      const link = document.createElement("a");
      link.href = new URL(page.url, root);
      link.textContent = page.title;
      const at = page.lowText.indexOf(words[0]);
      const excerpt = document.createElement("p");
      const mark = document.createElement("mark");
      mark.textContent = page.text.slice(at, at + words[0].length);
      excerpt.append((at > around ? "…" : "") + page.text.slice(Math.max(0, at - around), at), mark,
        page.text.slice(at + words[0].length, at + words[0].length + around) + "…");
      const item = document.createElement("li");
      item.append(link, excerpt);
      list.append(item);
    }
    const count = document.createElement("p");
    count.textContent = found.length === 0 ? "No page has these words." : `${found.length} pages`;
    results.replaceChildren(count, list);
  };

  const search = async () => {
    const words = form.elements.q.value.toLowerCase().split(/\s+/).filter(Boolean);
    results.hidden = words.length === 0;
    if (results.hidden) return;
    try {
      show(find(await load(), words), words);
    } catch (error) {
      results.textContent = `Search failed: ${error.message}.`;
    }
  };

  form.addEventListener("input", search);
  form.addEventListener("submit", (event) => { event.preventDefault(); search(); });
  const query = new URLSearchParams(location.search).get("q");
  if (query) {
    form.elements.q.value = query;
    search();
  }
})();
