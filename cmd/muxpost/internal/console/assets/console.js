// The pages are whole without this. It fetches the page again every few seconds while somebody looks at it, and puts the parts that have changed in the
// place of the old ones: not where a person types, has chosen text, or has the focus.
"use strict";

(() => {
  const period = 5000;
  const main = document.querySelector("main[data-live]");
  if (!main || !window.fetch || !window.DOMParser) return;
  const stale = document.getElementById("stale");
  const ours = (of) => [...of.querySelectorAll("[data-part]")].filter((part) => !part.parentElement.closest("[data-part]"));
  const names = (of) => ours(of).map((part) => part.dataset.part).join("\n");

  const changed = (field) => {
    if (field.type === "hidden") return false;
    if (field.type === "checkbox") return field.checked !== field.defaultChecked;
    if (field.options) return [...field.options].some((option) => option.selected !== option.defaultSelected);
    return field.value !== field.defaultValue;
  };

  const inHand = (part) => {
    if (part.contains(document.activeElement)) return true;
    const chosen = document.getSelection();
    if (chosen && !chosen.isCollapsed && (part.contains(chosen.anchorNode) || part.contains(chosen.focusNode))) return true;
    return [...part.querySelectorAll("input, select, textarea")].some(changed);
  };

  const replace = (next) => {
    if (names(main) !== names(next)) {
      // There is something more or less than before, such as an entry of a list.
      if (!inHand(main)) main.replaceChildren(...next.childNodes);
    } else {
      const fresh = ours(next);
      ours(main).forEach((part, i) => {
        if (part.hasAttribute("data-keep") || part.outerHTML === fresh[i].outerHTML || inHand(part)) return;
        const across = [...part.querySelectorAll(".scroll")].map((box) => [box.scrollLeft, box.scrollTop]);
        part.replaceWith(fresh[i]);
        fresh[i].querySelectorAll(".scroll").forEach((box, n) => { [box.scrollLeft, box.scrollTop] = across[n] || [0, 0]; });
      });
    }
    main.querySelectorAll(".live").forEach((said) => { said.hidden = false; });
  };

  const refresh = async () => {
    const ended = new AbortController();
    const timer = setTimeout(() => ended.abort(), 60000);
    try {
      const answer = await fetch(location.href, { credentials: "same-origin", redirect: "error", cache: "no-store", signal: ended.signal });
      if (!answer.ok) throw new Error(String(answer.status));
      const next = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
      if (!next) throw new Error("no page");
      replace(next);
      stale.hidden = true;
    } catch {
      stale.hidden = false;
    } finally {
      clearTimeout(timer);
    }
  };

  let waiting = 0;
  let busy = false;
  const later = () => { clearTimeout(waiting); waiting = setTimeout(now, period); };
  const now = async () => {
    if (busy) return;
    if (!document.hidden) {
      busy = true;
      await refresh();
      busy = false;
    }
    later();
  };
  document.addEventListener("visibilitychange", () => { if (!document.hidden) now(); });
  main.querySelectorAll(".live").forEach((said) => { said.hidden = false; });
  later();
})();
